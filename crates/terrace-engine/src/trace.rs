//! The file of a routing trace.

use crate::error::EngineError;
use crate::options::Options;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use terrace_backend::TraceRecorder;
use terrace_model::ByteSize;
use terrace_store::StoreStats;

/// A trace that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedTrace {
    /// Its file.
    pub path: PathBuf,
    /// Its size.
    pub size: ByteSize,
    /// It had become too long, and the run's end is missing.
    pub cut_off: bool,
}

/// Where a run's trace goes. Open from the start, under another name: a folder that is not there or may not be written to
/// is noticed before the run, and a trace from before is not lost if the run fails.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    part: PathBuf,
    file: File,
    policy: String,
    done: bool,
}

impl TraceFile {
    /// For a run that is to be recorded.
    pub fn for_run(options: &Options) -> Result<Option<Self>, EngineError> {
        let Some(path) = options.record_trace.clone() else { return Ok(None) };
        let mut part = path.clone().into_os_string();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = File::create(&part).map_err(|source| EngineError::Trace { path: path.clone(), source })?;
        Ok(Some(Self { path, part, file, policy: options.cache_policy.to_string(), done: false }))
    }

    /// Writes what was recorded.
    pub fn save(mut self, recorder: TraceRecorder, stats: &StoreStats) -> Result<SavedTrace, EngineError> {
        let cut_off = recorder.is_full();
        let bytes = recorder.finish(self.policy.clone(), stats);
        let written = self.file.write_all(&bytes).and_then(|()| std::fs::rename(&self.part, &self.path));
        written.map_err(|source| EngineError::Trace { path: self.path.clone(), source })?;
        self.done = true;
        Ok(SavedTrace { path: self.path.clone(), size: ByteSize(bytes.len() as u64), cut_off })
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        if !self.done {
            // Nothing of a run that ended early is worth keeping; that it cannot be removed is not worth an error.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}
