//! Counters of a store.

use crate::clock::Clock;
use crate::rows::RowStats;
use std::time::{Duration, Instant};
use terrace_model::{ByteSize, LayerId};

/// Counters since the store was opened or [`reset_stats`](crate::Store::reset_stats) was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Bytes read from the files, including hulls.
    pub bytes_read: ByteSize,
    /// Requests passed to the engine, including retries.
    pub requests: u64,
    /// Accepted blocks that were resident.
    pub hits: u64,
    /// Accepted blocks that had to be read.
    pub misses: u64,
    /// Accepted blocks that were already being read.
    pub joined: u64,
    /// Evicted blocks.
    pub evictions: u64,
    /// Time that [`next`](crate::Store::next), [`read_into`](crate::Store::read_into) and
    /// [`read_rows`](crate::Store::read_rows) waited for I/O.
    pub stall: Duration,
    /// Time with at least one request in flight. The calling thread counts a request until it
    /// notices its completion.
    pub io_busy: Duration,
    /// The part of this time with a demand in flight, so that something was missing
    /// ([`speculate`](crate::Store::speculate) and [`fill`](crate::Store::fill) are not demand).
    pub demand_busy: Duration,
    /// The part of [`StoreStats::bytes_read`] that demands read.
    pub demand_read: ByteSize,
    /// The part of [`StoreStats::io_busy`] in which the consumer computed, as it reported by
    /// [`computing`](crate::Store::computing), and did not wait.
    pub hidden: Duration,
    /// Time that the consumer reported as computing with experts, without waiting.
    pub experts: Duration,
    /// Time that the consumer reported as computing anything else, without waiting.
    pub dense: Duration,
    /// Blocks that were read as guesses ([`speculate`](crate::Store::speculate)).
    pub speculated: u64,
    /// Their bytes, including hulls.
    pub speculated_bytes: ByteSize,
    /// Guessed blocks that were requested while they were resident or being read.
    pub speculation_used: u64,
    /// Guessed blocks that had not been requested when they expired or their slot was needed.
    pub speculation_wasted: u64,
    /// Guesses that were never passed to the engine.
    pub speculation_expired: u64,
    /// Blocks that were read into free room ([`fill`](crate::Store::fill)).
    pub filled: u64,
    /// Their bytes, including hulls.
    pub filled_bytes: ByteSize,
    /// Failed reads of guesses and of filling.
    pub background_failures: u64,
    /// Blocks and other reads whose checksums were compared ([`verify`](crate::Store::verify)).
    pub verified: u64,
    /// Number of checksum mismatches.
    pub mismatches: u64,
    /// Blocks and other reads that had the expected checksum when they were read again.
    pub healed: u64,
    /// Reads of tables by row ([`read_rows`](crate::Store::read_rows)).
    pub rows: RowStats,
    /// Bytes of slots in use now (loading and resident).
    pub resident: ByteSize,
    /// Blocks resident now.
    pub resident_blocks: u64,
    /// Blocks of the store.
    pub blocks: u64,
    /// The requested budget.
    pub budget: ByteSize,
    /// Bytes of all slots together by the current budget ([`BudgetHandle`](crate::BudgetHandle)).
    pub capacity: ByteSize,
    /// Number of times the capacity was reduced.
    pub shrinks: u64,
    /// Number of times the capacity was increased.
    pub grows: u64,
}

impl StoreStats {
    /// Returns what was counted since `earlier`, which must be from the same store. Sizes are the
    /// current ones.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            requests: self.requests.saturating_sub(earlier.requests),
            hits: self.hits.saturating_sub(earlier.hits),
            misses: self.misses.saturating_sub(earlier.misses),
            joined: self.joined.saturating_sub(earlier.joined),
            evictions: self.evictions.saturating_sub(earlier.evictions),
            stall: self.stall.saturating_sub(earlier.stall),
            io_busy: self.io_busy.saturating_sub(earlier.io_busy),
            demand_busy: self.demand_busy.saturating_sub(earlier.demand_busy),
            demand_read: self.demand_read.saturating_sub(earlier.demand_read),
            hidden: self.hidden.saturating_sub(earlier.hidden),
            experts: self.experts.saturating_sub(earlier.experts),
            dense: self.dense.saturating_sub(earlier.dense),
            speculated: self.speculated.saturating_sub(earlier.speculated),
            speculated_bytes: self.speculated_bytes.saturating_sub(earlier.speculated_bytes),
            speculation_used: self.speculation_used.saturating_sub(earlier.speculation_used),
            speculation_wasted: self.speculation_wasted.saturating_sub(earlier.speculation_wasted),
            speculation_expired: self.speculation_expired.saturating_sub(earlier.speculation_expired),
            filled: self.filled.saturating_sub(earlier.filled),
            filled_bytes: self.filled_bytes.saturating_sub(earlier.filled_bytes),
            background_failures: self.background_failures.saturating_sub(earlier.background_failures),
            verified: self.verified.saturating_sub(earlier.verified),
            mismatches: self.mismatches.saturating_sub(earlier.mismatches),
            healed: self.healed.saturating_sub(earlier.healed),
            rows: self.rows.since(&earlier.rows),
            ..*self
        }
    }

    /// Returns the share of accepted blocks that needed neither a read nor waiting; 0 if there were
    /// none.
    pub fn hit_rate(&self) -> f64 {
        let all = self.hits + self.misses + self.joined;
        if all == 0 { 0.0 } else { self.hits as f64 / all as f64 }
    }

    /// Returns gigabytes (10^9) per second while requests were in flight; 0 if there were none.
    pub fn read_gbps(&self) -> f64 {
        gbps(self.bytes_read, self.io_busy)
    }

    /// Returns gigabytes (10^9) per second of demand, while demands were in flight; 0 if there were
    /// none. Requests count until their completion is noticed, so this is the rate that was used,
    /// not the rate that the disk can reach.
    pub fn demand_gbps(&self) -> f64 {
        gbps(self.demand_read, self.demand_busy)
    }

    /// Returns the share of the time with requests in flight in which the consumer computed; 0 if
    /// there were none. In the rest of that time it waited, or did something between two
    /// computations.
    pub fn overlap(&self) -> f64 {
        let busy = self.io_busy.as_secs_f64();
        if busy == 0.0 { 0.0 } else { (self.hidden.as_secs_f64() / busy).min(1.0) }
    }
}

fn gbps(bytes: ByteSize, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds == 0.0 { 0.0 } else { bytes.0 as f64 / seconds / 1e9 }
}

/// Counters of one layer's blocks, like those of [`StoreStats`]. Bytes and requests are counted for
/// the blocks that they read (those of `read_into` are not counted), and waits for the block that
/// was waited for first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerStats {
    /// The layer; `None` for blocks outside of layers.
    pub layer: Option<LayerId>,
    /// Accepted blocks that were resident.
    pub hits: u64,
    /// Accepted blocks that had to be read.
    pub misses: u64,
    /// Accepted blocks that were already being read.
    pub joined: u64,
    /// Bytes read from the files, including hulls.
    pub bytes_read: ByteSize,
    /// Requests passed to the engine, including retries.
    pub requests: u64,
    /// Time that [`next`](crate::Store::next) waited.
    pub stall: Duration,
    /// Time with at least one request for this layer in flight, up to the last completed one.
    pub io_busy: Duration,
    /// Time that the consumer computed with this layer's experts, without waiting.
    pub experts: Duration,
    /// Blocks that were read as guesses.
    pub speculated: u64,
    /// Guessed blocks that were requested in time.
    pub speculation_used: u64,
    /// Guessed blocks that were not used.
    pub speculation_wasted: u64,
}

/// The engine that reads the files, and its settings, for display.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineInfo {
    /// `io_uring` or `pread`.
    pub name: &'static str,
    /// True if reads bypass the page cache.
    pub direct: bool,
    /// Alignment of offsets, lengths and addresses in bytes (1 if buffered).
    pub alignment: u64,
    /// Why this engine and these settings are used, in words.
    pub reason: String,
    /// Rate of this device with these settings in 10^9 bytes per second, if it was measured.
    pub gbps: Option<f64>,
}

/// Sums the time during which something was busy.
#[derive(Debug, Default)]
pub(crate) struct BusyClock {
    since: Option<Instant>,
    total: Duration,
}

impl BusyClock {
    /// Notes whether it is busy from now on.
    pub fn set(&mut self, busy: bool, clock: &Clock) {
        match (self.since, busy) {
            (None, true) => self.since = Some(clock.now()),
            (Some(since), false) => {
                self.total += clock.now().saturating_duration_since(since);
                self.since = None;
            }
            _ => {}
        }
    }

    /// Returns the sum up to `now`.
    pub fn total_at(&self, now: Instant) -> Duration {
        self.total + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Resets the sum at `now`.
    pub fn reset(&mut self, now: Instant) {
        self.total = Duration::ZERO;
        self.since = self.since.map(|_| now);
    }
}
