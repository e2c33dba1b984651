//! What can go wrong between a file and memory, with the names and numbers that people need to find it.

use std::io;
use std::path::PathBuf;
use terrace_model::ByteSize;

/// Why the store could not give the bytes.
///
/// Every message is complete on its own: where there is a cause below, the message contains it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A model file cannot be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A block, or a read, lies outside the files as they are now.
    #[error(
        "{tensor} does not fit its file: {len} bytes at offset {offset} of {}, which has {file_len} bytes",
        path.display()
    )]
    OutsideFile {
        /// The file.
        path: PathBuf,
        /// The tensor, with the expert in brackets if it is one expert's part.
        tensor: String,
        /// Where its bytes should begin.
        offset: u64,
        /// How many there should be.
        len: u64,
        /// How long the file is.
        file_len: u64,
    },
    /// A block, or a read, that no file can satisfy.
    #[error("{tensor}: {reason}")]
    BadExtent {
        /// The tensor, with the expert in brackets if it is one expert's part.
        tensor: String,
        /// What is wrong with the extent.
        reason: String,
    },
    /// The list of the `static` policy cannot be used.
    #[error("hot list {}: {reason}", path.display())]
    HotList {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Reading failed.
    #[error("cannot read {tensor} ({len} bytes at offset {offset} of {}): {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The tensor, with the expert in brackets if it is one expert's part.
        tensor: String,
        /// Where its bytes begin in the file.
        offset: u64,
        /// How many bytes it has.
        len: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The file ended before the bytes did: it shrank while it was being read.
    #[error(
        "{} ended inside {tensor}: wanted {wanted} bytes at offset {offset}, got {got}; the file shrank while it was being read",
        path.display()
    )]
    UnexpectedEof {
        /// The file.
        path: PathBuf,
        /// The tensor, with the expert in brackets if it is one expert's part.
        tensor: String,
        /// Where its bytes begin in the file.
        offset: u64,
        /// How many bytes it has.
        wanted: u64,
        /// How many of them the file still had.
        got: u64,
    },
    /// The arena cannot hold a single block.
    #[error("the RAM budget is too small: {tensor} alone needs {needed} ({} bytes), the budget is {budget}", needed.0)]
    BudgetTooSmall {
        /// The block that does not fit.
        tensor: String,
        /// Bytes that its slot takes.
        needed: ByteSize,
        /// Bytes that the arena has.
        budget: ByteSize,
    },
    /// The budget's address space cannot be had.
    #[error("cannot map {budget} for the weights: {source}")]
    Arena {
        /// Bytes asked for.
        budget: ByteSize,
        /// What the system said.
        source: io::Error,
    },
    /// The I/O engine that was asked for cannot be had, or stopped working.
    #[error("I/O engine {engine}: {source}")]
    Engine {
        /// `io_uring` or `pread`.
        engine: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Direct I/O was asked for and cannot be had.
    #[error("direct I/O is not possible on {}: {reason}", path.display())]
    Direct {
        /// The file.
        path: PathBuf,
        /// What the probe found.
        reason: String,
    },
    /// A setting that makes no sense.
    #[error("{setting}: {reason}")]
    Config {
        /// Its name.
        setting: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A [`Fetch`](crate::Fetch) or [`BlockId`](crate::BlockId) was used with a store that does not know it, or after
    /// its lease had ended: a mistake in the calling code.
    #[error("misuse of the store: {0}")]
    Misuse(String),
    /// The caller's progress function stopped a [`read_into`](crate::Store::read_into).
    #[error("stopped after {done} of {total} bytes")]
    Cancelled {
        /// Bytes read until then.
        done: u64,
        /// Bytes asked for.
        total: u64,
    },
}
