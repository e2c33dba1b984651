//! Donors: files with the model's tensors in other types.

use super::error::SweepError;
use super::subjects::{Subject, Subjects};
use std::io::{Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_ggml::gguf;
use terrace_ggml::llama::FileType;
use terrace_ggml::quantize::WeightType;
use terrace_model::ModelFile;
use terrace_model::identity::ModelIdentity;
use terrace_platform::input_file;
use terrace_quantize::{QuantizeError, QuantizeOptions, QuantizePlan, QuantizeProgress, TypeRule};

/// Bytes read at once.
const PART: usize = 4 << 20;

/// A file with tensors of the model in other types.
#[derive(Clone, Debug)]
pub struct Donor {
    /// Its name in the results.
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

    /// Size in bytes and types of a subject's tensors in this donor; `None` unless all of them are
    /// here in the shapes of `model`.
    pub fn has(&self, subject: &Subject, model: &ModelFile) -> Option<(u64, String)> {
        let mut types: Vec<&str> = Vec::new();
        let mut bytes = 0;
        for name in &subject.tensors {
            let tensor =
                self.model.tensor(name).filter(|t| model.tensor(name).is_some_and(|m| m.shape == t.shape))?;
            bytes += tensor.extent.len;
            if !types.contains(&tensor.ty.name.as_str()) {
                types.push(&tensor.ty.name);
            }
        }
        Some((bytes, types.join("+")))
    }

    /// The donor's identity.
    pub fn identity(&self) -> ModelIdentity {
        ModelIdentity::of(&self.model)
    }

    /// Checksum of its tensors of these subjects, which distinguishes it from other files of the
    /// same size. `progress` is called every few MiB, and may end it.
    ///
    /// # Errors
    /// [`SweepError::Io`] if the file cannot be read; [`SweepError::Cancelled`].
    pub fn checksum(
        &self,
        subjects: &Subjects,
        progress: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<u32, SweepError> {
        let mut crc = crc32fast::Hasher::new();
        let mut part = vec![0; PART];
        for tensor in subjects.tensors().filter_map(|name| self.model.tensor(name)) {
            let path = &self.model.shards[tensor.extent.file.index()].path;
            let io = |source| SweepError::Io { path: path.clone(), source };
            let (mut file, _) = input_file::open(path).map_err(io)?;
            file.seek(SeekFrom::Start(tensor.extent.offset)).map_err(io)?;
            let mut left = tensor.extent.len;
            while left > 0 {
                let part = &mut part[..usize::try_from(left).map_or(PART, |left| left.min(PART))];
                file.read_exact(part).map_err(io)?;
                crc.update(part);
                left -= part.len() as u64;
                if progress().is_break() {
                    return Err(SweepError::Cancelled);
                }
            }
        }
        Ok(crc.finalize())
    }
}

/// Writes a donor to `path` with these subjects' tensors, converted to `ty` from the model at
/// `from`. Returns warnings about it.
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
) -> Result<Vec<String>, QuantizeError> {
    let mut options = QuantizeOptions::new(from, FileType::COPY);
    options.rules = subjects.tensors().filter_map(|name| Some(TypeRule::of_tensor(name, ty?))).collect();
    options.only = Some(subjects.tensors().map(str::to_owned).collect());
    options.imatrix = imatrix.map(Path::to_owned);
    let plan = QuantizePlan::new(&options)?;
    plan.write(path, progress)?;
    Ok(plan.warnings().to_vec())
}
