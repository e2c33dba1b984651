//! What is kept about a model from run to run, each kind in a file of its own that may be deleted at
//! any time.

use crate::cache_file::{forget_oldest, read_cache_file, replace_cache_file};
use crate::file_kind::{FileKind, KeptFileError};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use terrace_model::identity::FileIdentity;

/// Maximum number of models; beyond it, the least recently used one is removed.
pub const MAX_MODELS: usize = 64;

/// The file of one model.
#[derive(Debug)]
pub struct ModelCacheFile {
    path: PathBuf,
    model: FileIdentity,
    /// Maximum size in bytes.
    most: u64,
}

impl ModelCacheFile {
    /// The model's file in `dir`, of up to `most` bytes.
    pub fn new(dir: &Path, model: FileIdentity, most: u64) -> Self {
        Self { path: dir.join(model.file_stem()).with_added_extension("json"), model, most }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub const fn model(&self) -> &FileIdentity {
        &self.model
    }

    /// Reads it; `None` if there is no file. `model_of` is the model that the contents name.
    ///
    /// # Errors
    /// The system's reason, or why the file is not this model's.
    pub fn read<W: DeserializeOwned>(
        &self,
        kind: &FileKind,
        model_of: impl Fn(&W) -> &FileIdentity,
    ) -> Result<Option<W>, KeptFileError> {
        let text = read_cache_file(&self.path, self.most).map_err(|error| self.wrong(error))?;
        let Some(text) = text else { return Ok(None) };
        let wire = kind.parse(text.as_bytes()).map_err(|reason| self.wrong(reason))?;
        let other = model_of(&wire);
        if *other != self.model {
            return Err(self.wrong(format!("made for another model, `{}`", other.name)));
        }
        Ok(Some(wire))
    }

    /// Replaces it, and removes files of models that have not been used for long.
    ///
    /// # Errors
    /// The system's reason, or that the text is too long.
    pub fn write(&self, text: &str) -> Result<(), KeptFileError> {
        let most = self.most;
        if text.len() as u64 > most {
            return Err(self.wrong(format!("{} bytes are too many (at most {most})", text.len())));
        }
        replace_cache_file(&self.path, text.as_bytes()).map_err(|error| self.wrong(error))?;
        forget_oldest(&self.path, MAX_MODELS);
        Ok(())
    }

    /// The error for contents that cannot be right.
    pub fn wrong(&self, reason: impl ToString) -> KeptFileError {
        KeptFileError::new(&self.path, reason)
    }
}
