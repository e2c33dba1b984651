//! The statistics of a model's experts as a file that is safe to delete.

use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use terrace_backend::ExpertUsage;
use terrace_model::identity::FileIdentity;
use terrace_store::{read_cache_file, replace_cache_file};

const FORMAT: &str = "terrace-experts";
const VERSION: u32 = 1;
/// Bytes of a file at most; the largest models of today have 48,000 experts, which take half a megabyte.
const MAX_FILE: u64 = 4 << 20;
/// Models kept; beyond, the one that was used longest ago goes.
const MAX_MODELS: usize = 64;

/// A layer's experts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerCounts {
    /// Its number.
    pub layer: u32,
    /// By expert: its uses, those of earlier runs less and less.
    pub counts: Vec<u64>,
}

/// Why statistics could not be read or kept.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct UsageFileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// Where a model's statistics are.
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

    /// What it holds; nothing if it is not there. The layers are among those of `shape`, with as many experts.
    ///
    /// # Errors
    /// The system's reason, or why it is not the model's statistics.
    pub fn read(&self, shape: &ExpertUsage) -> Result<Vec<LayerCounts>, UsageFileError> {
        let text = read_cache_file(&self.path, MAX_FILE).map_err(|error| self.wrong(error.to_string()))?;
        let Some(text) = text else { return Ok(Vec::new()) };
        // The version first: another one may look different.
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let unreadable = |e: serde_json::Error| self.wrong(format!("not an expert statistics file: {e}"));
        let Head { format, version } = serde_json::from_str(&text).map_err(unreadable)?;
        if format != FORMAT || version != VERSION {
            let reason = format!("expected `{FORMAT}` version {VERSION}, found `{format}` version {version}");
            return Err(self.wrong(reason));
        }
        let wire: Wire = serde_json::from_str(&text).map_err(unreadable)?;
        if wire.model != self.model {
            return Err(self.wrong(format!("made for another model, `{}`", wire.model.name)));
        }
        // Which layers are managed depends on the run.
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

    /// Replaces what it holds, and lets go of files of models that were not used for long.
    ///
    /// # Errors
    /// The system's reason; more experts than a file may hold.
    pub fn write(&self, layers: Vec<LayerCounts>) -> Result<(), UsageFileError> {
        let wire = Wire { format: FORMAT.into(), version: VERSION, model: self.model.clone(), layers };
        let text = serde_json::to_vec(&wire).expect("counts are plain data");
        if text.len() as u64 > MAX_FILE {
            return Err(self.wrong(format!("{} bytes are too many (at most {MAX_FILE})", text.len())));
        }
        replace_cache_file(&self.path, &text).map_err(|error| self.wrong(error.to_string()))?;
        self.forget_oldest();
        Ok(())
    }

    fn forget_oldest(&self) {
        let Some(files) = self.path.parent().and_then(|dir| fs::read_dir(dir).ok()) else { return };
        let mut files: Vec<(SystemTime, PathBuf)> = files
            .filter_map(|file| {
                Some((file.as_ref().ok()?.metadata().ok()?.modified().ok()?, file.ok()?.path()))
            })
            .filter(|(_, path)| path.extension().is_some_and(|ext| ext == "json") && *path != self.path)
            .collect();
        files.sort();
        let excess = files.len().saturating_sub(MAX_MODELS - 1);
        for (_, path) in &files[..excess] {
            // Another run may have been faster.
            let _ = fs::remove_file(path);
        }
    }

    fn wrong(&self, reason: String) -> UsageFileError {
        UsageFileError { path: self.path.clone(), reason }
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
