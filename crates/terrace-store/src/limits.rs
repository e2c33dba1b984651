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

/// Number of times as many requests as keep a disk busy that may be in flight at most.
const DEEPER: u32 = 4;

/// Number of requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueDepth {
    /// As many as keep the disk busy while the consumer waits for them.
    pub usual: u32,
    /// Most, where the consumer computes for so long that the disk has read all others meanwhile.
    pub most: u32,
}

impl QueueDepth {
    /// Returns a depth that is never exceeded.
    pub fn fixed(depth: u32) -> Self {
        Self { usual: depth, most: depth }
    }

    /// Returns a depth that grows where the disk would idle otherwise; `usual` is at most [`MAX_DEPTH`].
    pub fn growing(usual: u32) -> Self {
        Self { usual, most: usual.saturating_mul(DEEPER).min(MAX_DEPTH) }
    }
}

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
