//! A limit of the memory of other processes, their page cache included, of which there is none: jobs do not count
//! the page cache.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why there is no such group.
#[derive(Debug)]
pub enum CapError {
    /// There are no control groups that limit memory, where they should be.
    NoControlGroup(PathBuf),
    /// The system has nothing that limits the page cache of processes.
    Unsupported,
    /// A file of them could not be made or written.
    File(PathBuf, io::Error),
}

/// A control group for other processes.
pub struct MemoryCap(Infallible);

impl MemoryCap {
    /// # Errors
    /// [`CapError::Unsupported`].
    pub fn new(_: u64) -> Result<Self, CapError> {
        Err(CapError::Unsupported)
    }

    pub fn path(&self) -> &Path {
        match self.0 {}
    }

    /// # Errors
    /// None.
    pub fn remove(&self) -> io::Result<()> {
        match self.0 {}
    }

    pub fn command(&self, _: &Path) -> Command {
        match self.0 {}
    }
}
