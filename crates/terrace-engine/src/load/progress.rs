//! How far a load has come.

use terrace_model::ByteSize;

/// How far the load of resident weights has come.
#[derive(Clone, Copy, Debug)]
pub struct LoadProgress {
    /// Bytes read.
    pub done: ByteSize,
    /// Bytes to read.
    pub total: ByteSize,
}
