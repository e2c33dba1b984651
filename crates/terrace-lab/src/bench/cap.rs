//! A control group that limits the memory of a run, its page cache included.

use super::error::BenchError;
use std::path::Path;
use std::process::Command;
use terrace_model::ByteSize;
use terrace_platform::memory_cap::{self, CapError};

/// A control group for the runs; removed when dropped.
pub struct MemoryCap(memory_cap::MemoryCap);

impl MemoryCap {
    /// Creates a group whose processes have at most `limit`.
    ///
    /// # Errors
    /// There are no control groups, or this process cannot create one.
    pub fn new(limit: ByteSize) -> Result<Self, BenchError> {
        memory_cap::MemoryCap::new(limit.bytes()).map(Self).map_err(|error| match error {
            CapError::NoControlGroup(place) => BenchError::NoControlGroup(place),
            CapError::Unsupported => BenchError::Unsupported("--memory-cap"),
            CapError::File(path, source) => BenchError::Prepare { what: "--memory-cap", path, source },
        })
    }

    /// A command that enters the group and then executes `program`, so that all of the program is
    /// within the limit.
    pub fn command(&self, program: &Path) -> Command {
        self.0.command(program)
    }
}

impl Drop for MemoryCap {
    fn drop(&mut self) {
        if let Err(error) = self.0.remove() {
            tracing::warn!(%error, "cannot remove the control group {}", self.0.path().display());
        }
    }
}
