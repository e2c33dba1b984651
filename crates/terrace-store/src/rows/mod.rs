//! Tables that are read by row: which reads fetch a set of rows, and rows kept in RAM.

pub(crate) mod cache;
pub(crate) mod join;

use crate::block::BlockId;
use std::time::Duration;
use terrace_model::ByteSize;

/// A table of rows of equal length, of which only single rows are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowTable {
    /// The block of the whole table.
    pub block: BlockId,
    /// Bytes of a row.
    pub row: u64,
}

/// Counters of reads by row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowStats {
    /// Rows that were asked for.
    pub asked: u64,
    /// The same without repetitions within a call.
    pub distinct: u64,
    /// Rows that had to be read; the others of [`RowStats::distinct`] were in RAM.
    pub read: u64,
    /// Those of [`RowStats::read`] that were asked for before they were needed.
    pub ahead: u64,
    /// Requests passed to the engine, without retries.
    pub requests: u64,
    /// Bytes that these requests read.
    pub bytes: ByteSize,
    /// Time that the consumer waited for rows, a part of [`StoreStats::stall`](crate::StoreStats).
    pub stall: Duration,
}

impl RowStats {
    /// Returns what was counted since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            asked: self.asked.saturating_sub(earlier.asked),
            distinct: self.distinct.saturating_sub(earlier.distinct),
            read: self.read.saturating_sub(earlier.read),
            ahead: self.ahead.saturating_sub(earlier.ahead),
            requests: self.requests.saturating_sub(earlier.requests),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            stall: self.stall.saturating_sub(earlier.stall),
        }
    }

    /// Returns the number of distinct rows that were in RAM when they were asked for.
    pub const fn cached(&self) -> u64 {
        self.distinct.saturating_sub(self.read)
    }
}
