//! What an I/O engine is told, and what it reports.

use crate::buffers::Target;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// One read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Index into the store's in-flight table; comes back in the completion.
    pub tag: u32,
    /// Index into the files that the engine was made with.
    pub file: u32,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Where to. Stays valid until the completion was reported: the in-flight table owns it.
    pub target: Target,
    /// The memory may never have been written to: finding its pages can cost more than the read, and should not be
    /// left to the calling thread.
    pub fresh: bool,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    /// The request's tag.
    pub tag: u32,
    /// As read(2) tells it: bytes read, or a negative error number.
    pub result: i32,
}

/// Reads requests in any order, up to its depth at a time.
pub(crate) trait IoEngine: Send {
    /// For people.
    fn name(&self) -> &'static str;
    /// Takes a request, at the latest started by the next [`flush`](Self::flush) or waiting [`reap`](Self::reap). The
    /// caller keeps to the depth: pushed and not yet reaped.
    fn push(&mut self, request: Request) -> io::Result<()>;
    /// Starts everything that was pushed.
    fn flush(&mut self) -> io::Result<()>;
    /// Reads from these files from now on, by their position. Nothing is in flight.
    fn set_files(&mut self, files: Arc<[File]>) -> io::Result<()>;
    /// Appends what was completed. With `wait`, which needs a request in flight, at least one.
    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) -> io::Result<()>;
}
