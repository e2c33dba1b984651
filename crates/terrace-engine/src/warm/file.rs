//! Statistics of a model's experts, in a file that may be deleted at any time.

use super::USE;
use crate::learn::shapes;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use terrace_backend::ExpertUsage;
use terrace_model::ModelFile;
use terrace_model::identity::FileIdentity;
use terrace_model::learn::{ExpertUses, LayerShape, LearnFile, LearnLayer, Reported};
use terrace_store::identity::file_identity;
use terrace_store::{FileKind, KeptFileError, forget_oldest, read_cache_file, replace_cache_file};

const KIND: FileKind = FileKind { what: "an expert statistics file", format: "terrace-experts", version: 1 };
/// Maximum size of a file in bytes; the largest models of today have 48,000 experts, which take
/// half a megabyte.
const MAX_FILE: u64 = 4 << 20;
/// Maximum number of models; beyond it, the least recently used one is removed.
const MAX_MODELS: usize = 64;

/// Counts of one layer's experts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerCounts {
    /// Its number.
    pub layer: u32,
    /// Decayed uses by expert.
    pub counts: Vec<u64>,
}

/// The statistics file of one model.
#[derive(Debug)]
pub struct UsageFile {
    path: PathBuf,
    model: FileIdentity,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    format: String,
    version: u32,
    model: FileIdentity,
    layers: Vec<LayerCounts>,
}

impl UsageFile {
    /// The model's file in `dir`.
    pub fn new(dir: &Path, model: FileIdentity) -> Self {
        Self { path: dir.join(model.file_stem()).with_added_extension("json"), model }
    }

    /// Where it is.
    #[cfg(fuzzing)]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the counts; empty if there is no file. Only layers of `shape` are returned, with as
    /// many experts as there.
    ///
    /// # Errors
    /// The system's reason, or why the file is not this model's statistics.
    pub fn read(&self, shape: &ExpertUsage) -> Result<Vec<LayerCounts>, KeptFileError> {
        let text = read_cache_file(&self.path, MAX_FILE).map_err(|error| self.wrong(error))?;
        let Some(text) = text else { return Ok(Vec::new()) };
        let wire: Wire = KIND.parse(text.as_bytes()).map_err(|reason| self.wrong(reason))?;
        if wire.model != self.model {
            return Err(self.wrong(format!("made for another model, `{}`", wire.model.name)));
        }
        // The managed layers differ between runs.
        for (id, experts) in shape.shape() {
            let of_layer = |other: &&LayerCounts| other.layer == id.0;
            let mut found = wire.layers.iter().filter(of_layer);
            if found.next().is_some_and(|l| l.counts.len() != experts) || found.next().is_some() {
                return Err(self.wrong(format!("wrong number of experts in layer {id}")));
            }
        }
        let managed = |of: &LayerCounts| shape.shape().any(|(layer, _)| layer.0 == of.layer);
        Ok(wire.layers.into_iter().filter(managed).collect())
    }

    /// Replaces the file, and removes files of models that have not been used for long.
    ///
    /// # Errors
    /// The system's reason, or too many experts for a file.
    pub fn write(&self, layers: Vec<LayerCounts>) -> Result<(), KeptFileError> {
        let text = text_of(self.model.clone(), layers);
        if text.len() as u64 > MAX_FILE {
            return Err(self.wrong(format!("{} bytes are too many (at most {MAX_FILE})", text.len())));
        }
        replace_cache_file(&self.path, text.as_bytes()).map_err(|error| self.wrong(error))?;
        forget_oldest(&self.path, MAX_MODELS);
        Ok(())
    }

    fn wrong(&self, reason: impl ToString) -> KeptFileError {
        KeptFileError::new(&self.path, reason)
    }
}

/// The text of a model's file.
fn text_of(model: FileIdentity, layers: Vec<LayerCounts>) -> String {
    let wire = Wire { format: KIND.format.into(), version: KIND.version, model, layers };
    serde_json::to_string(&wire).expect("counts are plain data")
}

/// Reads statistics as a learn file, in whole uses; `None` if the text is of another format. The
/// error says what is wrong with it.
pub fn from_statistics(text: &[u8]) -> Option<Result<LearnFile, String>> {
    #[derive(Deserialize)]
    struct Format {
        format: String,
    }
    serde_json::from_slice::<Format>(text).ok().filter(|of| of.format == KIND.format)?;
    let layers = |wire: Wire| {
        let mut layers: Vec<LearnLayer> = Vec::new();
        for LayerCounts { layer, counts } in wire.layers {
            if layers.iter().any(|known| known.layer == layer) {
                return Err(format!("layer {layer} is listed twice"));
            }
            // What was used is not forgotten by rounding.
            let whole = |count: u64| (count / USE + u64::from(count % USE >= USE / 2)).max(1);
            let used = (0..).zip(counts).filter(|(_, count)| *count > 0);
            let experts =
                used.map(|(expert, count)| ExpertUses { expert, hot: 0, cold: whole(count) }).collect();
            layers.push(LearnLayer { layer, experts, ..LearnLayer::default() });
        }
        layers.retain(|layer| !layer.experts.is_empty());
        layers.sort_by_key(|layer| layer.layer);
        Ok(LearnFile { mode: Reported::Update, layers, ..LearnFile::default() })
    };
    Some(KIND.parse(text).and_then(layers))
}

/// The text of a model's statistics, with the uses of a learn file that fits the model.
///
/// # Errors
/// The system's reason why the model cannot be identified.
pub fn to_statistics(model: &ModelFile, file: &LearnFile) -> std::io::Result<String> {
    let identity = file_identity(model)?;
    let layer = |shape: LayerShape| LayerCounts {
        layer: shape.layer,
        counts: match file.layer(shape.layer) {
            Some(layer) => layer.counts(shape.experts).iter().map(|uses| uses.saturating_mul(USE)).collect(),
            None => vec![0; shape.experts as usize],
        },
    };
    let layers = shapes(model).into_iter().map(layer).collect();
    Ok(text_of(identity, layers))
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
