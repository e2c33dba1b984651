//! Progress of a load.

use terrace_model::ByteSize;

/// Progress of reading resident weights.
#[derive(Clone, Copy, Debug)]
pub struct LoadProgress {
    /// Bytes read.
    pub done: ByteSize,
    /// Bytes to read.
    pub total: ByteSize,
}
