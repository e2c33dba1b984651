//! Ranges of addresses that stand for tensors whose bytes are elsewhere.

use crate::error::BackendError;
use terrace_ggml::memory::Pages;
use terrace_model::ByteSize;

/// Distance between the addresses of such tensors: what ggml aligns to, so that it adds no padding.
pub const STEP: usize = 64;

/// A range of addresses for tensors whose bytes are elsewhere.
pub fn addresses(size: usize) -> Result<Pages, BackendError> {
    Pages::reserved(size).map_err(|_| no_memory(size))
}

/// No memory for so large a buffer.
pub const fn no_memory(size: usize) -> BackendError {
    BackendError::NoMemory { size: ByteSize(size as u64) }
}
