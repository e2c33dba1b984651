//! Reserved addresses for tensors whose bytes are elsewhere.

use crate::error::BackendError;
use terrace_ggml::memory::Pages;
use terrace_model::ByteSize;

/// Distance between the addresses of such tensors. It equals ggml's alignment, so that ggml adds no
/// padding.
pub const STEP: usize = 64;

/// Reserves a range of addresses for tensors whose bytes are elsewhere.
pub fn addresses(size: usize) -> Result<Pages, BackendError> {
    Pages::reserved(size).map_err(|_| no_memory(size))
}

/// Makes the error for a buffer that cannot be allocated.
pub const fn no_memory(size: usize) -> BackendError {
    BackendError::NoMemory { size: ByteSize(size as u64) }
}
