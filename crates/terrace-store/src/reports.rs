//! Counters as they are written to files: `run --json` and what the plug-in reports.

use crate::io::CopyStats;
use crate::rows::RowStats;
use crate::stats::{LayerStats, StoreStats};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Counters of the store over one run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Bytes read from the model's files.
    pub bytes_read: u64,
    /// Read requests.
    pub requests: u64,
    /// Uses of weights that were in slots.
    pub hits: u64,
    /// Uses of weights that had to be read.
    pub misses: u64,
    /// Share of the uses that neither read nor waited, from 0 to 1.
    pub hit_rate: f64,
    /// Read rate in 10^9 bytes per second, over the time with a request in flight.
    pub read_gbps: f64,
    /// Time that computing waited for reading, in milliseconds.
    pub stall_ms: f64,
    /// Uses of weights that were already being read.
    #[serde(default)]
    pub joined: u64,
    /// Blocks evicted.
    #[serde(default)]
    pub evictions: u64,
    /// Reads that were compared with checksums (`--verify`).
    #[serde(default)]
    pub verified: u64,
    /// Number of reads with a wrong checksum.
    #[serde(default)]
    pub mismatches: u64,
    /// Wrong reads that were right when they were repeated.
    #[serde(default)]
    pub healed: u64,
    /// Time that the computing thread spent on experts, without waiting, in milliseconds.
    #[serde(default)]
    pub experts_ms: f64,
    /// Time that it spent on everything else, without waiting, in milliseconds.
    #[serde(default)]
    pub dense_ms: f64,
    /// Time with at least one request in flight, in milliseconds. Here and below, a request counts
    /// until its completion is noticed.
    #[serde(default)]
    pub io_busy_ms: f64,
    /// Share of that time in which something was computed; 0 if nothing was read.
    #[serde(default)]
    pub overlap: f64,
    /// Bytes of demand reads; what was read ahead is left out.
    #[serde(default)]
    pub demand_bytes: u64,
    /// Time with at least one demand read in flight, in milliseconds.
    #[serde(default)]
    pub demand_busy_ms: f64,
    /// 10^9 bytes per second of demand reads in that time.
    #[serde(default)]
    pub demand_gbps: f64,
    /// The disk's duty during demand reads: `demand_gbps` as a share of the rate that was measured
    /// for the device (`plan.tuned_gbps`). `None` if that was never measured.
    #[serde(default)]
    pub duty: Option<f64>,
    /// Counters of reads ahead of use.
    #[serde(default)]
    pub ahead: AheadReport,
    /// Counters of tables read by row.
    #[serde(default)]
    pub rows: RowReport,
    /// True if the RAM budget adapted to free memory.
    #[serde(default)]
    pub adapts: bool,
    /// The RAM budget at the end, in bytes.
    #[serde(default)]
    pub budget_now: u64,
    /// Number of times the budget shrank for lack of memory.
    #[serde(default)]
    pub shrinks: u64,
    /// Number of times it grew again.
    #[serde(default)]
    pub grows: u64,
}

/// Counters of reads ahead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct AheadReport {
    /// Blocks read on a guess.
    pub speculated: u64,
    pub speculated_bytes: u64,
    /// Guesses that were used.
    pub used: u64,
    /// Guesses that expired or were evicted before they were used.
    pub wasted: u64,
    /// Guesses that were never read.
    pub expired: u64,
    /// Bytes filled into free slots.
    pub filled_bytes: u64,
    /// Reads ahead that failed.
    pub failures: u64,
}

/// Counters of tables read by row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RowReport {
    /// Rows that were looked up.
    pub asked: u64,
    /// The same without repetitions within a graph.
    pub distinct: u64,
    /// Distinct rows that were in RAM.
    pub cached: u64,
    /// Rows that were read, and those of them that were asked for before their graph ran.
    pub read: u64,
    pub ahead: u64,
    /// Read requests.
    pub requests: u64,
    /// Bytes that they read.
    pub bytes_read: u64,
    /// Time that computing waited for rows, in milliseconds.
    pub stall_ms: f64,
}

impl From<&RowStats> for RowReport {
    fn from(stats: &RowStats) -> Self {
        Self {
            asked: stats.asked,
            distinct: stats.distinct,
            cached: stats.cached(),
            read: stats.read,
            ahead: stats.ahead,
            requests: stats.requests,
            bytes_read: stats.bytes.bytes(),
            stall_ms: millis(stats.stall),
        }
    }
}

/// Reads of one copy of a model's file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CopyReport {
    /// Its path.
    #[serde(serialize_with = "terrace_model::path_text::serialize")]
    pub path: PathBuf,
    /// True if it is a replica, not the model's own file.
    pub replica: bool,
    /// Bytes that were read from it.
    pub bytes_read: u64,
    /// Its share of the bytes that were read from the file and its replicas, from 0 to 1.
    pub share: f64,
    /// Reads of it that failed.
    pub errors: u64,
    /// True if it is still used.
    pub used: bool,
}

impl CopyReport {
    /// Converts the counters of a store's copies.
    pub fn all(copies: &[CopyStats]) -> Vec<Self> {
        let file = |copy: &CopyStats| copy.file;
        let whole = |of: u32| copies.iter().filter(|copy| file(copy) == of).map(|copy| copy.bytes_read).sum();
        let report = |copy: &CopyStats| {
            let whole: u64 = whole(copy.file);
            Self {
                path: copy.path.clone(),
                replica: copy.replica,
                bytes_read: copy.bytes_read,
                share: if whole == 0 { 0.0 } else { copy.bytes_read as f64 / whole as f64 },
                errors: copy.errors,
                used: copy.used,
            }
        };
        copies.iter().map(report).collect()
    }
}

/// Counters of one layer's weights.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LayerReport {
    /// The layer's number. `None` for weights that belong to no layer.
    pub layer: Option<u32>,
    /// Uses of weights that were in slots.
    pub hits: u64,
    /// Uses of weights that had to be read.
    pub misses: u64,
    /// Uses of weights that were already being read.
    pub joined: u64,
    /// Bytes read from the model's files.
    pub bytes_read: u64,
    /// Read requests.
    pub requests: u64,
    /// Time that computing waited, in milliseconds.
    pub stall_ms: f64,
    /// Time that the computing thread spent on this layer's experts, without waiting, in
    /// milliseconds.
    #[serde(default)]
    pub experts_ms: f64,
    /// Time with at least one request for this layer in flight, in milliseconds.
    #[serde(default)]
    pub io_busy_ms: f64,
    /// Blocks read on a guess.
    pub speculated: u64,
    /// Guesses that were used.
    pub used: u64,
    /// Guesses that expired or were evicted before they were used.
    pub wasted: u64,
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl From<&LayerStats> for LayerReport {
    fn from(stats: &LayerStats) -> Self {
        Self {
            layer: stats.layer.map(|layer| layer.0),
            hits: stats.hits,
            misses: stats.misses,
            joined: stats.joined,
            bytes_read: stats.bytes_read.bytes(),
            requests: stats.requests,
            stall_ms: millis(stats.stall),
            experts_ms: millis(stats.experts),
            io_busy_ms: millis(stats.io_busy),
            speculated: stats.speculated,
            used: stats.speculation_used,
            wasted: stats.speculation_wasted,
        }
    }
}

impl StoreReport {
    /// Converts counters of a store whose device was measured at `tuned` 10^9 bytes per second.
    pub fn new(stats: &StoreStats, tuned: Option<f64>) -> Self {
        Self {
            bytes_read: stats.bytes_read.bytes(),
            requests: stats.requests,
            hits: stats.hits,
            misses: stats.misses,
            verified: stats.verified,
            mismatches: stats.mismatches,
            healed: stats.healed,
            hit_rate: stats.hit_rate(),
            read_gbps: stats.read_gbps(),
            stall_ms: millis(stats.stall),
            joined: stats.joined,
            evictions: stats.evictions,
            experts_ms: millis(stats.experts),
            dense_ms: millis(stats.dense),
            io_busy_ms: millis(stats.io_busy),
            overlap: stats.overlap(),
            demand_bytes: stats.demand_read.bytes(),
            demand_busy_ms: millis(stats.demand_busy),
            demand_gbps: stats.demand_gbps(),
            duty: tuned.filter(|tuned| *tuned > 0.0).map(|tuned| stats.demand_gbps() / tuned),
            ahead: AheadReport {
                speculated: stats.speculated,
                speculated_bytes: stats.speculated_bytes.bytes(),
                used: stats.speculation_used,
                wasted: stats.speculation_wasted,
                expired: stats.speculation_expired,
                filled_bytes: stats.filled_bytes.bytes(),
                failures: stats.background_failures,
            },
            rows: RowReport::from(&stats.rows),
            adapts: false,
            budget_now: 0,
            shrinks: stats.shrinks,
            grows: stats.grows,
        }
    }
}
