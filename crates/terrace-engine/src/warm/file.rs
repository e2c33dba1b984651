//! Statistics of a model's experts, in a file that may be deleted at any time.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use terrace_backend::ExpertUsage;
use terrace_model::identity::FileIdentity;
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
        for known in shape.layers() {
            let of_layer = |other: &&LayerCounts| other.layer == known.0.0;
            let mut found = wire.layers.iter().filter(of_layer);
            if found.next().is_some_and(|l| l.counts.len() != known.1.len()) || found.next().is_some() {
                return Err(self.wrong(format!("wrong number of experts in layer {}", known.0)));
            }
        }
        let managed = |of: &LayerCounts| shape.layers().any(|(layer, _)| layer.0 == of.layer);
        Ok(wire.layers.into_iter().filter(managed).collect())
    }

    /// Replaces the file, and removes files of models that have not been used for long.
    ///
    /// # Errors
    /// The system's reason, or too many experts for a file.
    pub fn write(&self, layers: Vec<LayerCounts>) -> Result<(), KeptFileError> {
        let wire =
            Wire { format: KIND.format.into(), version: KIND.version, model: self.model.clone(), layers };
        let text = serde_json::to_vec(&wire).expect("counts are plain data");
        if text.len() as u64 > MAX_FILE {
            return Err(self.wrong(format!("{} bytes are too many (at most {MAX_FILE})", text.len())));
        }
        replace_cache_file(&self.path, &text).map_err(|error| self.wrong(error))?;
        forget_oldest(&self.path, MAX_MODELS);
        Ok(())
    }

    fn wrong(&self, reason: impl ToString) -> KeptFileError {
        KeptFileError::new(&self.path, reason)
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
