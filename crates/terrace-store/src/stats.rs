//! What the store did, in numbers.

use crate::clock::Clock;
use std::time::{Duration, Instant};
use terrace_model::{ByteSize, LayerId};

/// Counters since the store was opened or [`reset_stats`](crate::Store::reset_stats) was called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Bytes that came from the files, hulls included.
    pub bytes_read: ByteSize,
    /// Requests given to the engine, retries included.
    pub requests: u64,
    /// Accepted blocks that were resident.
    pub hits: u64,
    /// Accepted blocks that had to be read.
    pub misses: u64,
    /// Accepted blocks that were already being read for another request.
    pub joined: u64,
    /// Blocks that gave up their slot.
    pub evictions: u64,
    /// Time that [`next`](crate::Store::next) and [`read_into`](crate::Store::read_into) waited for I/O.
    pub stall: Duration,
    /// Time with at least one request in flight, as the calling thread saw it: a request counts until its completion
    /// was noticed.
    pub io_busy: Duration,
    /// The part of it with a request in flight that was asked for ([`speculate`](crate::Store::speculate) and
    /// [`fill`](crate::Store::fill) do not ask): while it runs, something is missing.
    pub demand_busy: Duration,
    /// The part of [`StoreStats::bytes_read`] that such requests read.
    pub demand_read: ByteSize,
    /// The part of [`StoreStats::io_busy`] in which the consumer computed, as it said
    /// ([`computing`](crate::Store::computing)), and did not wait.
    pub hidden: Duration,
    /// Time that the consumer computed with experts, as it said, waiting left out.
    pub experts: Duration,
    /// Time that it computed anything else, waiting left out.
    pub dense: Duration,
    /// Blocks that were read ahead because they might be asked for ([`speculate`](crate::Store::speculate)).
    pub speculated: u64,
    /// Their bytes, hulls included.
    pub speculated_bytes: ByteSize,
    /// Those that were asked for while they were there or on their way.
    pub speculation_used: u64,
    /// Those that had not been asked for when they expired or their slot was needed.
    pub speculation_wasted: u64,
    /// Guesses that were never given to the engine.
    pub speculation_expired: u64,
    /// Blocks that were read into free room ([`fill`](crate::Store::fill)).
    pub filled: u64,
    /// Their bytes, hulls included.
    pub filled_bytes: ByteSize,
    /// Reads of the two kinds above that failed.
    pub background_failures: u64,
    /// Bytes of the slots in use now (loading and resident).
    pub resident: ByteSize,
    /// Blocks resident now.
    pub resident_blocks: u64,
    /// Blocks that the store knows.
    pub blocks: u64,
    /// The budget that was asked for.
    pub budget: ByteSize,
    /// Bytes of all slots together, as the budget is now ([`BudgetHandle`](crate::BudgetHandle)).
    pub capacity: ByteSize,
    /// Times that it became smaller.
    pub shrinks: u64,
    /// Times that it became larger again.
    pub grows: u64,
}

impl StoreStats {
    /// What was counted since `earlier`, which the same store said; sizes are those of now.
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
            ..*self
        }
    }

    /// Share of the accepted blocks that needed no read and no waiting; 0 if there were none.
    pub fn hit_rate(&self) -> f64 {
        let all = self.hits + self.misses + self.joined;
        if all == 0 { 0.0 } else { self.hits as f64 / all as f64 }
    }

    /// Gigabytes (10^9) per second while requests were in flight; 0 if there were none.
    pub fn read_gbps(&self) -> f64 {
        gbps(self.bytes_read, self.io_busy)
    }

    /// Gigabytes (10^9) per second of what was asked for, while such requests were in flight; 0 if there were none. Requests
    /// count until their end is noticed, so this is what the disk was made to do, not what it can.
    pub fn demand_gbps(&self) -> f64 {
        gbps(self.demand_read, self.demand_busy)
    }

    /// Share of the time with requests in flight in which the consumer computed; 0 if there were none. What is left was waited
    /// for, or passed between two computations.
    pub fn overlap(&self) -> f64 {
        let busy = self.io_busy.as_secs_f64();
        if busy == 0.0 { 0.0 } else { (self.hidden.as_secs_f64() / busy).min(1.0) }
    }
}

fn gbps(bytes: ByteSize, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds == 0.0 { 0.0 } else { bytes.0 as f64 / seconds / 1e9 }
}

/// Counters of one layer's blocks, as those of [`StoreStats`]. Bytes and requests are counted for the blocks that they
/// bring (`read_into` has none), waiting for the block that was waited for first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerStats {
    /// The layer; none: the blocks that belong to none.
    pub layer: Option<LayerId>,
    /// Accepted blocks that were resident.
    pub hits: u64,
    /// Accepted blocks that had to be read.
    pub misses: u64,
    /// Accepted blocks that were already being read.
    pub joined: u64,
    /// Bytes that came from the files, hulls included.
    pub bytes_read: ByteSize,
    /// Requests given to the engine, retries included.
    pub requests: u64,
    /// Time that [`next`](crate::Store::next) waited.
    pub stall: Duration,
    /// Time with at least one request for this layer in flight, up to the last one that is over.
    pub io_busy: Duration,
    /// Time that the consumer computed with this layer's experts, waiting left out.
    pub experts: Duration,
    /// Blocks that were read ahead because they might be asked for.
    pub speculated: u64,
    /// Those that were asked for in time.
    pub speculation_used: u64,
    /// Those that were read for nothing.
    pub speculation_wasted: u64,
}

/// What reads the files and how, for the printed plan.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineInfo {
    /// `io_uring` or `pread`.
    pub name: &'static str,
    /// Whether reads go around the page cache.
    pub direct: bool,
    /// What offsets, lengths and addresses are multiples of, in bytes (1 when buffered).
    pub alignment: u64,
    /// What the probes found, for people.
    pub reason: String,
    /// 10^9 bytes per second that this device gave with these settings when they were measured, if they were.
    pub gbps: Option<f64>,
}

/// Adds up the time during which something was going on.
#[derive(Debug, Default)]
pub(crate) struct BusyClock {
    since: Option<Instant>,
    total: Duration,
}

impl BusyClock {
    /// Notes whether something is going on from now on.
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

    /// The sum up to `now`.
    pub fn total_at(&self, now: Instant) -> Duration {
        self.total + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Starts the sum again, at `now`.
    pub fn reset(&mut self, now: Instant) {
        self.total = Duration::ZERO;
        self.since = self.since.map(|_| now);
    }
}
