//! The file of a routing trace.

use crate::error::EngineError;
use crate::file_error::{FileError, FileRole};
use crate::options::Options;
use std::io::Write;
use std::path::PathBuf;
use terrace_backend::TraceRecorder;
use terrace_model::ByteSize;
use terrace_store::StoreStats;
use terrace_store::part_file::PartFile;

/// A trace that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedTrace {
    pub path: PathBuf,
    pub size: ByteSize,
    /// True if it became too long and the end of the run is missing.
    pub cut_off: bool,
}

/// The output file of a run's trace.
#[derive(Debug)]
pub struct TraceFile {
    file: PartFile,
    policy: String,
}

impl TraceFile {
    /// Opens the file, if the run's trace is wanted.
    pub fn for_run(options: &Options) -> Result<Option<Self>, EngineError> {
        let Some(path) = &options.record.trace else { return Ok(None) };
        let file = PartFile::create(path, &terrace_backend::TRACE_FILE)
            .map_err(|source| FileError::unwritten(FileRole::Trace, path.clone(), &source))?;
        Ok(Some(Self { file, policy: options.cache.cache_policy.to_string() }))
    }

    /// Writes the recording.
    pub fn save(self, recorder: TraceRecorder, stats: &StoreStats) -> Result<SavedTrace, EngineError> {
        let cut_off = recorder.is_full();
        let bytes = recorder.finish(self.policy, stats);
        let path = self.file.path().to_owned();
        match self.file.finish(|out| out.write_all(&bytes)) {
            Ok(size) => Ok(SavedTrace { path, size: ByteSize(size), cut_off }),
            Err(source) => Err(FileError::unwritten(FileRole::Trace, path, &source).into()),
        }
    }
}
