//! Errors of measuring.

use crate::error::StoreError;
use std::io;
use std::path::PathBuf;
use terrace_model::ByteSize;

/// Why reading cannot be measured.
///
/// Every message is complete on its own: it contains the message of its source, if it has one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IoBenchError {
    /// The file cannot be opened, or no engine is available.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file is shorter than one request.
    #[error("{} has {len} bytes: too short to measure, the shortest read is {least} bytes", path.display())]
    TooShort {
        path: PathBuf,
        /// Length of the file in bytes.
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
        /// Bytes that must be free.
        needed: ByteSize,
        /// Bytes that are free.
        free: ByteSize,
    },
    /// The file to measure cannot be written.
    #[error("cannot write a file of {size} to {}: {source}", dir.display())]
    Write {
        /// The directory.
        dir: PathBuf,
        /// Bytes of the file.
        size: ByteSize,
        /// The system's error.
        source: io::Error,
    },
    /// A read failed.
    #[error("cannot read {} ({request_size} at a time, {queue_depth} in flight): {source}", path.display())]
    Read {
        path: PathBuf,
        /// Bytes per request.
        request_size: ByteSize,
        /// Number of requests in flight.
        queue_depth: u32,
        /// The system's error.
        source: io::Error,
    },
    /// Memory or threads are not available.
    #[error("cannot get {what}: {source}")]
    Resources {
        /// The missing resource.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The caller stopped it.
    #[error("stopped")]
    Stopped,
}
