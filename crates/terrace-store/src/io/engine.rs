//! The interface of I/O engines.

use crate::buffers::Target;
use std::fs::File;
use std::io;
use std::sync::Arc;

/// One read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Index in the store's in-flight table, repeated in the completion.
    pub tag: u32,
    /// Index of the file among the engine's.
    pub file: u32,
    /// Number of the copy that this is of a file of the store, for injected faults.
    pub copy: u8,
    /// Offset in the file in bytes.
    pub offset: u64,
    /// The memory to read into. It stays valid until the completion has been reported: the
    /// in-flight table owns it.
    pub target: Target,
    /// True if starting the read may take as long as the read: the file is read through the page
    /// cache, or the memory may never have been written to, and its pages must be allocated. That
    /// should not be done on the calling thread.
    pub slow_start: bool,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    /// Tag of the request.
    pub tag: u32,
    /// Number of bytes read, as from read(2), or a negative error number.
    pub result: i32,
}

/// An I/O engine. It completes requests in any order, up to its depth at a time.
pub(crate) trait IoEngine: Send {
    /// Returns the name of the engine.
    fn name(&self) -> &'static str;
    /// Adds a request, which is started by the next [`flush`](Self::flush) or waiting
    /// [`reap`](Self::reap) at the latest. The caller must not exceed the depth with requests that
    /// were pushed and not reaped.
    fn push(&mut self, request: Request) -> io::Result<()>;
    /// Starts all requests that were pushed.
    fn flush(&mut self) -> io::Result<()>;
    /// Replaces the files, which requests name by index. Nothing may be in flight.
    fn set_files(&mut self, files: Arc<[File]>) -> io::Result<()>;
    /// Appends completions to `out`. With `wait`, which needs a request in flight, at least one.
    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) -> io::Result<()>;
}
