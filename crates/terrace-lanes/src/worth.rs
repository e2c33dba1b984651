//! Decides whether a lane's round trip is worth it: running estimates of its time, and of the CPU's.

use std::time::Duration;
use terrace_model::trial::Average;

/// Weight of a new measurement.
const NEW: f64 = 1.0 / 16.0;
/// Round trips that are measured before a lane may be skipped.
const FIRST: u32 = 16;
/// A skipped lane is used once in so many nodes, so that its estimate stays true; and one that
/// leaves nothing to the CPU is skipped once in as many, so that there is an estimate of the CPU.
const PROBE: u32 = 64;

/// Estimates of one layer. Plain numbers, used by thread 0 alone.
#[derive(Clone, Debug, Default)]
pub struct Worth {
    /// Seconds from handing a job over until its results are there.
    round_trip: Average,
    /// Seconds per pair that the CPU computes, with what it waits for.
    pair: Average,
    /// Round trips measured.
    measured: u32,
    /// Nodes since the other choice was last made.
    since: u32,
    /// Nodes in which the lane was skipped.
    pub skipped: u64,
}

impl Worth {
    /// Returns true if the lane should compute its pairs of a node with `pairs` pairs, of which it has
    /// `hot`. Both sides compute at the same time, so it pays as long as the CPU would need longer
    /// for all pairs than the lane for its own.
    pub fn pays(&mut self, hot: usize, pairs: usize) -> bool {
        self.since += 1;
        let (round_trip, pair) = (self.round_trip.get(), self.pair.get());
        let pays = match (round_trip, pair) {
            _ if self.measured < FIRST => true,
            (Some(round_trip), Some(pair)) => round_trip <= pair * pairs as f64,
            // The CPU has had nothing to compute.
            _ => hot < pairs || self.since <= PROBE,
        };
        let probe = !pays && pair.is_some() && self.since > PROBE;
        if probe || (!pays && pair.is_none()) {
            self.since = 0;
        }
        let pays = pays || probe;
        self.skipped += u64::from(!pays);
        pays
    }

    /// Notes a round trip.
    pub fn returned(&mut self, took: Duration) {
        self.measured = self.measured.saturating_add(1);
        // The first ones include making the device's graph.
        if self.measured > FIRST / 2 {
            self.round_trip.add(took.as_secs_f64(), NEW);
        }
    }

    /// The CPU has computed its `pairs` pairs of a node.
    pub fn computed(&mut self, pairs: usize, took: Duration) {
        if pairs > 0 {
            self.pair.add(took.as_secs_f64() / pairs as f64, NEW);
        }
    }

    /// The estimates: of a round trip, and of a pair on the CPU; zero before the first.
    pub fn estimates(&self) -> [Duration; 2] {
        [self.round_trip, self.pair].map(|seconds| Duration::from_secs_f64(seconds.get().unwrap_or(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates nodes in which the lane takes `lane` and the CPU `pair` microseconds per pair, and
    /// returns how many of the last 640 used the lane.
    fn used(lane: u64, pair: u64, hot: usize, pairs: usize) -> u32 {
        let mut worth = Worth::default();
        let mut used = 0;
        for node in 0..1_000 {
            let pays = worth.pays(hot, pairs);
            let cold = if pays { pairs - hot } else { pairs };
            if pays {
                worth.returned(Duration::from_micros(lane));
            }
            worth.computed(cold, Duration::from_micros(pair * cold as u64));
            used += u32::from(pays && node >= 360);
        }
        used
    }

    #[test]
    fn a_lane_that_does_not_pay_is_only_probed() {
        assert_eq!(used(1_000, 200, 4, 8), 640, "the CPU would need 1.6 ms");
        assert_eq!(used(1_000, 100, 4, 8), 10, "0.8 ms: once in 64 nodes");
        assert_eq!(used(1_000, 200, 8, 8), 640, "all are on the lane");
        assert_eq!(used(1_000, 100, 8, 8), 10);
    }

    #[test]
    fn estimates_follow_what_changes() {
        let mut worth = Worth::default();
        for _ in 0..200 {
            worth.returned(Duration::from_micros(100));
        }
        for _ in 0..200 {
            worth.returned(Duration::from_micros(900));
        }
        let [round_trip, pair] = worth.estimates();
        assert!(round_trip > Duration::from_micros(890) && pair == Duration::ZERO, "{round_trip:?}");
    }
}
