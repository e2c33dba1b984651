//! How many requests of which size may be in flight, and how many are where nothing says otherwise.

use crate::error::StoreError;
use crate::ranges::GRANULE;
use terrace_model::ByteSize;

/// Requests in flight where nothing was measured.
pub(crate) const DEFAULT_DEPTH: u32 = 32;
/// Bytes of a request where nothing was measured.
pub(crate) const DEFAULT_REQUEST: ByteSize = ByteSize::mib(1);
const MAX_DEPTH: u32 = 1024;
const MAX_REQUEST: u64 = 1 << 30;

/// Whether this many requests can be in flight.
pub(crate) fn check_depth(depth: u32) -> Result<(), StoreError> {
    if (1..=MAX_DEPTH).contains(&depth) {
        return Ok(());
    }
    let reason = format!("{depth} is not between 1 and {MAX_DEPTH}");
    Err(StoreError::Config { setting: "queue depth", reason })
}

/// Whether requests can have this size.
pub(crate) fn check_request(size: ByteSize) -> Result<(), StoreError> {
    if (GRANULE..=MAX_REQUEST).contains(&size.0) {
        return Ok(());
    }
    let reason = format!("{size} is not between 4 KiB and 1 GiB");
    Err(StoreError::Config { setting: "request size", reason })
}
