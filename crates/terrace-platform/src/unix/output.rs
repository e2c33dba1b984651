//! Writing to an open file without a lock or a buffer.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// An open file that can be written to.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a>(BorrowedFd<'a>);

impl<'a> Output<'a> {
    /// Returns a file, or an end of a pipe.
    pub fn of(file: &'a impl AsFd) -> Self {
        Self(file.as_fd())
    }

    /// Writes some of the bytes, and returns how many.
    ///
    /// # Errors
    /// The system's.
    pub fn write(self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(self.0, bytes)?)
    }
}

/// Returns this process's standard error.
pub fn stderr() -> Output<'static> {
    Output(rustix::stdio::stderr())
}
