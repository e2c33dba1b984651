//! What was measured.

use super::cases::Case;
use crate::kept::IoSettings;
use serde::Serialize;

/// What the page cache had to do with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// Nothing: direct reads.
    Bypassed,
    /// It had nothing of the file at the start, and no place was read twice.
    Cold,
    /// It had a part of the file and did not let go of it: the rate is not the device's.
    Warm,
    /// The file system does not tell.
    Unknown,
}

/// One case's measurement: of several, the one with the median rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was measured.
    #[serde(flatten)]
    pub case: Case,
    /// Bytes read.
    pub bytes: u64,
    /// Requests.
    pub requests: u64,
    /// Seconds from the first request to the last result.
    pub seconds: f64,
    /// 10^9 bytes per second.
    pub gbps: f64,
    /// The same in the slowest round.
    pub gbps_min: f64,
    /// The same in the fastest round.
    pub gbps_max: f64,
    /// Time that half of the requests did not exceed, in microseconds.
    pub p50_us: u32,
    /// Time that 99 of 100 requests did not exceed (of fewer than 100: the longest), in microseconds.
    pub p99_us: u32,
    /// Processor seconds per 10^9 bytes, the kernel's workers included; `None` beside computation.
    pub cpu_s_per_gb: Option<f64>,
    /// What the page cache had to do with it.
    pub cache: Cache,
    /// 10^9 bytes per second that the computation beside went through.
    pub compute_gbps: Option<f64>,
}

impl Row {
    /// Takes the median of one case's rounds; the cache was warm if it ever was.
    pub(super) fn median(mut rounds: Vec<Self>) -> Option<Self> {
        rounds.sort_by(|a, b| a.gbps.total_cmp(&b.gbps));
        let (slowest, fastest) = (*rounds.first()?, *rounds.last()?);
        let median = rounds[rounds.len() / 2];
        let cache =
            rounds.iter().map(|row| row.cache).find(|cache| *cache == Cache::Warm).unwrap_or(median.cache);
        Some(Self { gbps_min: slowest.gbps, gbps_max: fastest.gbps, cache, ..median })
    }
}

/// Everything that was found.
#[derive(Clone, Debug)]
pub struct IoReport {
    /// Times that everything was measured: all cases once, then all again, so that what drifts drifts for all.
    pub rounds: u32,
    /// The measurements, in the order of `IoBench::cases`.
    pub rows: Vec<Row>,
    /// 10^9 bytes per second that the computation goes through when nothing is read; `None` if it was not needed.
    pub compute_alone_gbps: Option<f64>,
    /// What could not be measured as wanted, for people.
    pub notes: Vec<String>,
    /// The settings that the rows speak for; `None` if nothing was read.
    pub recommended: Option<IoSettings>,
    /// Why these.
    pub reasons: Vec<String>,
    /// Why the recommendation should not be kept, if it should not.
    pub not_telling: Option<String>,
}
