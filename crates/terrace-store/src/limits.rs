//! Limits and defaults for the number and size of requests in flight.

use crate::error::StoreError;
use crate::ranges::GRANULE;
use terrace_model::ByteSize;

/// Requests in flight if nothing was measured.
pub(crate) const DEFAULT_DEPTH: u32 = 32;
/// Bytes of a request if nothing was measured.
pub(crate) const DEFAULT_REQUEST: ByteSize = ByteSize::mib(1);
/// Most requests in flight.
pub(crate) const MAX_DEPTH: u32 = 1024;
const MAX_REQUEST: u64 = 1 << 30;

/// Checks a number of requests in flight.
pub(crate) fn check_depth(depth: u32) -> Result<(), StoreError> {
    if (1..=MAX_DEPTH).contains(&depth) {
        return Ok(());
    }
    let reason = format!("{depth} is not between 1 and {MAX_DEPTH}");
    Err(StoreError::Config { setting: "queue depth", reason })
}

/// Checks a request size.
pub(crate) fn check_request(size: ByteSize) -> Result<(), StoreError> {
    if (GRANULE..=MAX_REQUEST).contains(&size.0) {
        return Ok(());
    }
    let reason = format!("{size} is not between 4 KiB and 1 GiB");
    Err(StoreError::Config { setting: "request size", reason })
}
