//! Errors between a file and memory, with the names and numbers that are needed to find the cause.

use std::io;
use std::path::PathBuf;
use terrace_model::ByteSize;

/// Why the store could not provide bytes.
///
/// Every message is complete on its own: it contains the message of its source, if it has one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A model file cannot be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A block or a read lies outside its file as it is now.
    #[error(
        "{tensor} does not fit its file: {len} bytes at offset {offset} of {}, which has {file_len} bytes",
        path.display()
    )]
    OutsideFile {
        path: PathBuf,
        /// The tensor, with the expert in brackets if it is one expert's part.
        tensor: String,
        /// Offset of its bytes in the file.
        offset: u64,
        /// Number of its bytes.
        len: u64,
        /// Length of the file in bytes.
        file_len: u64,
    },
    /// A block or a read has an invalid extent.
    #[error("{tensor}: {reason}")]
    BadExtent {
        /// The tensor, with the expert in brackets if it is one expert's part.
        tensor: String,
        /// The reason why the extent is invalid.
        reason: String,
    },
    /// The list of the `static` policy cannot be used.
    #[error("hot list {}: {reason}", path.display())]
    HotList {
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A read failed.
    #[error("cannot read {tensor} ({len} bytes at offset {offset} of {}): {source}", path.display())]
    Read {
        path: PathBuf,
        /// The tensor, with the expert in brackets if it is one expert's part.
        tensor: String,
        /// Offset of its bytes in the file.
        offset: u64,
        /// Number of its bytes.
        len: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The file ended too early, because it shrank while it was being read.
    #[error(
        "{} ended inside {tensor}: wanted {wanted} bytes at offset {offset}, got {got}; the file shrank while it was being read",
        path.display()
    )]
    UnexpectedEof {
        path: PathBuf,
        /// The tensor, with the expert in brackets if it is one expert's part.
        tensor: String,
        /// Offset of its bytes in the file.
        offset: u64,
        /// Number of its bytes.
        wanted: u64,
        /// Number of bytes that the file still had.
        got: u64,
    },
    /// Bytes are not those that the file had at first, as its checksums say.
    #[error(
        "{tensor} does not match its checksum ({len} bytes at offset {offset} of {}): checksum {found:08x}, expected {expected:08x}",
        path.display()
    )]
    Checksum {
        path: PathBuf,
        /// The tensor, with the expert in brackets if it is one expert's part.
        tensor: String,
        /// Offset of its bytes in the file.
        offset: u64,
        /// Number of its bytes.
        len: u64,
        /// Checksum (CRC-32) that it should have.
        expected: u32,
        /// Checksum of what was read.
        found: u32,
    },
    /// The arena cannot hold a single block.
    #[error("the RAM budget is too small: {tensor} alone needs {needed} ({} bytes), the budget is {budget}", needed.0)]
    BudgetTooSmall {
        /// The block that does not fit.
        tensor: String,
        /// Bytes of its slot.
        needed: ByteSize,
        /// Bytes of the arena.
        budget: ByteSize,
    },
    /// The address space of the budget cannot be reserved.
    #[error("cannot map {budget} for the weights: {source}")]
    Arena {
        /// Requested bytes.
        budget: ByteSize,
        /// The system's error.
        source: io::Error,
    },
    /// The requested I/O engine is not available, or stopped working.
    #[error("I/O engine {engine}: {source}")]
    Engine {
        /// `io_uring` or `pread`.
        engine: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Direct I/O was requested and is not available.
    #[error("direct I/O is not possible on {}: {reason}", path.display())]
    Direct {
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A setting is invalid.
    #[error("{setting}: {reason}")]
    Config {
        /// Its name.
        setting: &'static str,
        /// The reason.
        reason: String,
    },
    /// A mistake in the calling code: a [`Fetch`](crate::Fetch) or [`BlockId`](crate::BlockId) was
    /// used with a store that does not know it, or after its lease had ended.
    #[error("misuse of the store: {0}")]
    Misuse(String),
    /// The caller's progress function stopped a [`read_into`](crate::Store::read_into).
    #[error("stopped after {done} of {total} bytes")]
    Cancelled {
        /// Bytes read by then.
        done: u64,
        /// Requested bytes.
        total: u64,
    },
}
