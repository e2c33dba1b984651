//! Where other types of the tensors come from.

use super::error::SweepError;
use super::subjects::Subjects;
use crate::layer_skip::ModelIdentity;
use crate::quantize::{
    FileType, QuantizeError, QuantizeOptions, QuantizePlan, QuantizeProgress, TypeRule, WeightType,
};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_ggml::gguf;
use terrace_model::ModelFile;

/// A file that has tensors of the model in other types.
#[derive(Clone, Debug)]
pub struct Donor {
    /// What it is called in the results.
    pub name: String,
    /// The file, or the first of its shards.
    pub path: PathBuf,
    /// Its header.
    pub model: ModelFile,
}

impl Donor {
    /// Reads the header.
    ///
    /// # Errors
    /// [`SweepError::Donor`].
    pub fn open(name: impl Into<String>, path: impl Into<PathBuf>) -> Result<Self, SweepError> {
        let (name, path) = (name.into(), path.into());
        let model = gguf::read(&path).map_err(Box::new)?;
        Ok(Self { name, path, model })
    }

    /// What tells it from others.
    pub fn identity(&self) -> ModelIdentity {
        ModelIdentity::of(&self.model)
    }
}

/// Writes a donor to `path` that has these subjects' tensors, as `ty`, made of those of the model at `from`.
///
/// # Errors
/// [`QuantizeError`].
pub fn make_donor(
    from: &Path,
    ty: Option<WeightType>,
    subjects: &Subjects,
    imatrix: Option<&Path>,
    path: &Path,
    progress: &mut dyn FnMut(&QuantizeProgress<'_>) -> ControlFlow<()>,
) -> Result<(), QuantizeError> {
    let mut options = QuantizeOptions::new(from, FileType::COPY);
    options.rules = subjects.tensors().filter_map(|name| Some(TypeRule::of_tensor(name, ty?))).collect();
    options.only = Some(subjects.tensors().map(str::to_owned).collect());
    options.imatrix = imatrix.map(Path::to_owned);
    QuantizePlan::new(&options)?.write(path, progress)?;
    Ok(())
}
