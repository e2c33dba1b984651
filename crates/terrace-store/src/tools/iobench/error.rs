//! Why reading cannot be measured.

use crate::error::StoreError;
use std::io;
use std::path::PathBuf;
use terrace_model::ByteSize;

/// Why reading cannot be measured.
///
/// Every message is complete on its own: where there is a cause below, the message contains it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IoBenchError {
    /// The file cannot be opened, or no engine can be had.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Not one request fits the file.
    #[error("{} has {len} bytes: too short to measure, the shortest read is {least} bytes", path.display())]
    TooShort {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        len: u64,
        /// Bytes of the shortest read.
        least: u64,
    },
    /// The disk has no room for the file to measure.
    #[error(
        "no room in {} for a file of {size} to measure: {needed} ({} bytes) are needed, {free} ({} bytes) are free",
        dir.display(), needed.0, free.0
    )]
    NoRoom {
        /// The directory.
        dir: PathBuf,
        /// Bytes of the file.
        size: ByteSize,
        /// Bytes that would have to be free.
        needed: ByteSize,
        /// Bytes that are.
        free: ByteSize,
    },
    /// The file to measure cannot be written.
    #[error("cannot write a file of {size} to {}: {source}", dir.display())]
    Write {
        /// The directory.
        dir: PathBuf,
        /// Bytes of the file.
        size: ByteSize,
        /// What the system said.
        source: io::Error,
    },
    /// A read failed.
    #[error("cannot read {} ({request_size} at a time, {queue_depth} in flight): {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Bytes per request.
        request_size: ByteSize,
        /// Requests in flight.
        queue_depth: u32,
        /// What the system said.
        source: io::Error,
    },
    /// Memory or threads cannot be had.
    #[error("cannot get {what}: {source}")]
    Resources {
        /// What was wanted.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The caller's function stopped it.
    #[error("stopped")]
    Stopped,
}
