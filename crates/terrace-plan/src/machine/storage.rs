//! Disks.

use super::default_rates as default;
use serde::{Deserialize, Serialize};
use terrace_model::ByteSize;

/// Bytes of a request of a run, unless the storage was tuned otherwise.
const REQUEST: ByteSize = ByteSize::mib(1);

/// A disk, or other storage that holds model files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StorageProfile {
    /// A directory or file on it.
    #[serde(default)]
    pub path: String,
    /// Rate of large sequential requests. Default: the fastest of `reads`, or 3 GB/s.
    #[serde(default)]
    pub sequential_bytes_per_s: Option<f64>,
    /// Measured rates.
    #[serde(default)]
    pub reads: Vec<ReadRate>,
    /// Shares of their rates that reading and computing keep beside each other. Default: 95 % of the reads'
    /// rate, and what requests leave of computing that take a quarter of a core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
}

/// Shares of the rates of reading and of computing that remain while both go on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// Of reading.
    pub reads: f64,
    /// Of computing on all cores.
    pub computing: f64,
}

/// The rate of requests of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadRate {
    /// Bytes of a request.
    pub request: ByteSize,
    /// Number of requests in flight.
    pub depth: u32,
    /// True if reads bypass the page cache.
    pub direct: bool,
    /// True if offsets are random.
    pub random: bool,
    /// Bytes read per second.
    pub bytes_per_s: f64,
}

impl StorageProfile {
    /// Returns the bytes per second of large sequential requests.
    pub fn sequential(&self) -> f64 {
        let fastest = || self.reads.iter().map(|at| at.bytes_per_s).reduce(f64::max);
        self.sequential_bytes_per_s.or_else(fastest).unwrap_or(default::SEQUENTIAL)
    }

    /// Returns the bytes per second of random requests of `request` bytes, with the best number of
    /// them in flight. Between measured sizes the rate is interpolated over the logarithm of the
    /// size; above them it is that of the largest one; below them it falls like `n / (n + 24 KiB)`.
    /// It never exceeds [`Self::sequential`]. Without measurements it is `n / (n + 24 KiB)` of
    /// that.
    pub fn read_rate(&self, request: ByteSize) -> f64 {
        let size = request.bytes().max(1) as f64;
        let sequential = self.sequential();
        let points = self.random_points();
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return sequential * size / (size + default::HALF_RATE_REQUEST);
        };
        let rate = if size <= first.0 {
            // Small requests are limited by their number rather than by their bytes.
            let shape = |size: f64| size / (size + default::HALF_RATE_REQUEST);
            first.1 * shape(size) / shape(first.0)
        } else if size >= last.0 {
            last.1
        } else {
            let above = points.partition_point(|point| point.0 < size);
            let (low, high) = (points[above - 1], points[above]);
            let share = (size / low.0).ln() / (high.0 / low.0).ln();
            low.1 + share * (high.1 - low.1)
        };
        rate.min(sequential)
    }

    /// Returns the rate at which runs read weights of `bytes` bytes each, in requests of at most 1 MiB, while
    /// all cores compute.
    pub fn rate_in_runs(&self, bytes: u64) -> f64 {
        self.read_rate_beside(ByteSize(bytes).min(REQUEST))
    }

    /// Returns the rate of [`read_rate`](Self::read_rate) while all cores compute.
    pub fn read_rate_beside(&self, request: ByteSize) -> f64 {
        self.read_rate(request) * self.beside.map_or(default::READS_BESIDE, |beside| beside.reads)
    }

    /// Returns the seconds that computing on `cores` cores takes longer for each second of reading.
    pub fn delay(&self, cores: u32) -> f64 {
        match self.beside {
            Some(beside) => 1.0 - beside.computing,
            None => (default::CORES_BESIDE_READS / f64::from(cores.max(1))).min(1.0),
        }
    }

    /// Returns the seconds for one small read by itself, such as a row of a table.
    pub fn small_read(&self, bytes: u64) -> f64 {
        let request = ByteSize(bytes.max(4096));
        let alone = self.reads.iter().filter(|at| at.depth == 1 && at.random && at.request >= request);
        let measured = alone.min_by_key(|at| at.request).map(|at| at.request.bytes() as f64 / at.bytes_per_s);
        // 100 µs is the latency of a drive's flash memory.
        measured.unwrap_or(100e-6 + bytes as f64 / self.sequential())
    }

    /// Returns the best random rate at each measured size, in ascending order of size: of direct
    /// reads if there are any.
    fn random_points(&self) -> Vec<(f64, f64)> {
        let direct = self.reads.iter().any(|at| at.random && at.direct);
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut usable: Vec<&ReadRate> = self
            .reads
            .iter()
            .filter(|at| at.random && at.direct == direct && at.request.bytes() > 0)
            .collect();
        usable.sort_by_key(|at| at.request);
        for at in usable {
            let size = at.request.bytes() as f64;
            match points.last_mut() {
                Some(last) if last.0 == size => last.1 = last.1.max(at.bytes_per_s),
                _ => points.push((size, at.bytes_per_s)),
            }
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_lie_between_what_was_measured() {
        let at = |kib, depth, gb: f64| ReadRate {
            request: ByteSize::kib(kib),
            depth,
            direct: true,
            random: true,
            bytes_per_s: gb * 1e9,
        };
        let disk = StorageProfile {
            path: "/".into(),
            sequential_bytes_per_s: Some(2.4e9),
            beside: None,
            reads: vec![at(1024, 32, 2.4), at(4, 16, 0.34), at(64, 16, 1.64), at(64, 1, 0.9), at(4, 1, 0.08)],
        };
        assert_eq!(disk.read_rate(ByteSize::kib(64)), 1.64e9);
        assert_eq!(disk.read_rate(ByteSize::mib(64)), 2.4e9);
        let between = disk.read_rate(ByteSize::kib(256));
        assert!((between - 2.02e9).abs() < 1e7, "{between}");
        assert!((disk.small_read(1000) - 4096.0 / 0.08e9).abs() < 1e-9);
        assert_eq!(disk.read_rate_beside(ByteSize::mib(1)), 2.4e9 * default::READS_BESIDE);
        assert!(disk.delay(2) > disk.delay(64) && disk.delay(1) < 1.0);
        let beside = Some(Beside { reads: 0.5, computing: 0.75 });
        let measured = StorageProfile { beside, ..disk };
        assert_eq!((measured.read_rate_beside(ByteSize::mib(1)), measured.delay(2)), (1.2e9, 0.25));
        let unknown = StorageProfile::default();
        assert!(unknown.read_rate(ByteSize::kib(4)) < 0.2 * unknown.read_rate(ByteSize::mib(4)));
    }
}
