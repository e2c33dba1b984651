//! The one reader and the one writer of records.

use super::ModelRecord;
use crate::cache_file::{forget_oldest, read_cache_file, replace_cache_file};
use crate::file_kind::KeptFileError;
use std::path::{Path, PathBuf};
use std::time::Duration;
use terrace_model::identity::FileIdentity;
use terrace_platform::lock;

/// Maximum number of models; beyond it, the least recently used one is removed.
pub const MAX_MODELS: usize = 64;
/// Maximum size of a file in bytes; the largest models of today have 48,000 experts, which take
/// half a megabyte.
pub(super) const MAX_FILE: u64 = 4 << 20;
/// Time that another process may take to replace the file. One that takes longer has been stopped.
const PATIENCE_WITH_WRITERS: Duration = Duration::from_secs(1);

/// The file of one model's record.
#[derive(Debug)]
pub struct RecordFile {
    path: PathBuf,
    model: FileIdentity,
}

impl RecordFile {
    /// The model's file in `dir`.
    pub fn new(dir: &Path, model: FileIdentity) -> Self {
        Self { path: dir.join(model.file_stem()).with_added_extension("json"), model }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the record; an empty one if there is no file.
    ///
    /// # Errors
    /// The system's reason, or why the file is not this model's record.
    pub fn read(&self) -> Result<ModelRecord, KeptFileError> {
        let text = read_cache_file(&self.path, MAX_FILE).map_err(|error| self.wrong(error))?;
        let Some(text) = text else { return Ok(ModelRecord::default()) };
        let (other, record) = ModelRecord::parse(text.as_bytes()).map_err(|reason| self.wrong(reason))?;
        if other != self.model {
            return Err(self.wrong(format!("made for another model, `{}`", other.name)));
        }
        Ok(record)
    }

    /// Changes the record, and removes those of models that have not been used for long. What other
    /// processes have written into other sections stays; a file that is not this model's record is
    /// replaced.
    ///
    /// # Errors
    /// The system's reason, or that the record is too long.
    pub fn update(&self, change: impl FnOnce(&mut ModelRecord)) -> Result<(), KeptFileError> {
        let _alone = lock::turn(&self.path, PATIENCE_WITH_WRITERS);
        let mut record = self.read().unwrap_or_default();
        change(&mut record);
        let text = record.to_text(&self.model);
        if text.len() as u64 > MAX_FILE {
            return Err(self.wrong(format!("{} bytes are too many (at most {MAX_FILE})", text.len())));
        }
        replace_cache_file(&self.path, text.as_bytes()).map_err(|error| self.wrong(error))?;
        forget_oldest(&self.path, MAX_MODELS);
        Ok(())
    }

    /// The error for contents that cannot be right.
    fn wrong(&self, reason: impl ToString) -> KeptFileError {
        KeptFileError::new(&self.path, reason)
    }
}
