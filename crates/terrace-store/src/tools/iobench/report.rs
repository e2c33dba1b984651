//! The results of measuring.

use super::cases::Case;
use crate::kept::IoSettings;
use serde::Serialize;

/// The role of the page cache in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// None: reads were direct.
    Bypassed,
    /// It held nothing of the file at the start, and no place was read twice.
    Cold,
    /// It held a part of the file and did not drop it: the rate is not that of the device.
    Warm,
    /// The file system does not report it.
    Unknown,
}

/// The measurement of one case: of several rounds, the one with the median rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub case: Case,
    /// Number of bytes read.
    pub bytes: u64,
    /// Number of requests.
    pub requests: u64,
    /// Seconds from the first request to the last result.
    pub seconds: f64,
    /// Rate in 10^9 bytes per second.
    pub gbps: f64,
    /// Rate of the slowest round.
    pub gbps_min: f64,
    /// Rate of the fastest round.
    pub gbps_max: f64,
    /// Time in microseconds that half of the requests did not exceed.
    pub p50_us: u32,
    /// Time in microseconds that 99 of 100 requests did not exceed; the longest, of fewer than 100.
    pub p99_us: u32,
    /// Processor seconds per 10^9 bytes, including the kernel's workers; `None` during computation.
    pub cpu_s_per_gb: Option<f64>,
    /// The role of the page cache.
    pub cache: Cache,
    /// Rate of the computation at the same time, in 10^9 bytes per second.
    pub compute_gbps: Option<f64>,
}

impl Row {
    /// Takes the median of the rounds of one case. The cache counts as warm if it was in any round.
    pub(super) fn median(mut rounds: Vec<Self>) -> Option<Self> {
        rounds.sort_by(|a, b| a.gbps.total_cmp(&b.gbps));
        let (slowest, fastest) = (*rounds.first()?, *rounds.last()?);
        let median = rounds[rounds.len() / 2];
        let cache =
            rounds.iter().map(|row| row.cache).find(|cache| *cache == Cache::Warm).unwrap_or(median.cache);
        Some(Self { gbps_min: slowest.gbps, gbps_max: fastest.gbps, cache, ..median })
    }
}

/// The results of all measurements.
#[derive(Clone, Debug)]
pub struct IoReport {
    /// Number of rounds. Each measures all cases, so that drift affects all alike.
    pub rounds: u32,
    /// The measurements, in the order of `IoBench::cases`.
    pub rows: Vec<Row>,
    /// Rate of the computation while nothing is read, in 10^9 bytes per second; `None` if it was
    /// not measured.
    pub compute_alone_gbps: Option<f64>,
    /// Sentences on what could not be measured as intended.
    pub notes: Vec<String>,
    /// The recommended settings; `None` if nothing was read.
    pub recommended: Option<IoSettings>,
    /// The reasons for these settings.
    pub reasons: Vec<String>,
    /// Why the recommendation should not be kept; `None` if it can be kept.
    pub not_telling: Option<String>,
}
