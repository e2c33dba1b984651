//! What both sides of a layer did, a device and the CPU, by the names of the original. All numbers
//! are sums of what was measured.

use std::collections::BTreeMap;
use std::time::Duration;
use terrace_lanes::{HotLayerReport, LaneTally, LaneWork};
use terrace_model::learn::{Launches, LearnLayer};
use terrace_store::LayerStats;

/// A layer with copies on a device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sides {
    tally: LaneTally,
    work: LaneWork,
}

impl Sides {
    /// Since the load.
    pub const fn of(lane: &HotLayerReport) -> Self {
        Self { tally: lane.tally, work: lane.work }
    }

    /// Since an earlier moment.
    pub const fn since(&self, earlier: &Self) -> Self {
        Self { tally: self.tally.since(&earlier.tally), work: self.work.since(&earlier.work) }
    }

    /// How often each side computed, and why not.
    pub fn launches(&self) -> Launches {
        let LaneTally { launched, beside, without_hot, threshold, failed, .. } = self.tally;
        let reasons = [("threshold", threshold), ("device_failed", failed)];
        let reasons = reasons.into_iter().filter(|(_, count)| *count > 0);
        Launches {
            hot: launched,
            cold: beside,
            hot_zero: without_hot,
            cold_zero: launched.saturating_sub(beside),
            fallbacks: threshold + failed,
            reasons: reasons.map(|(name, count)| (name.to_owned(), count)).collect(),
            transferred: self.work.copied,
            ..Launches::default()
        }
    }
}

/// Notes in a layer's counts what both sides did.
pub(crate) fn record(layer: &mut LearnLayer, stats: Option<&LayerStats>, sides: Option<&Sides>) {
    layer.times = times(layer.calls, stats, sides);
    layer.launches = sides.map(Sides::launches).unwrap_or_default();
    if let Some(LayerStats { hits, misses, joined, bytes_read, .. }) = stats {
        layer.launches.in_ram = *hits;
        layer.launches.from_disk = misses + joined;
        layer.launches.bytes_from_disk = bytes_read.bytes();
    }
}

/// The times of a layer that was computed `calls` times, in microseconds per call. `stats` has what
/// the CPU computed and waited for where weights stream, `sides` both sides where there are copies.
fn times(calls: u64, stats: Option<&LayerStats>, sides: Option<&Sides>) -> BTreeMap<String, f64> {
    let mut times = BTreeMap::new();
    let mut put = |name: &str, time: Duration| {
        let time = (time.as_secs_f64() / calls.max(1) as f64 * 1e8).round() / 100.0;
        times.insert(format!("{name}_time_per_call_us"), time);
    };
    match sides.filter(|sides| sides.tally.cpu > Duration::ZERO) {
        Some(Sides { tally, work }) => {
            put("parallel_cold_lane_wall", tally.cpu);
            put("parallel_hot_lane_wall", tally.round_trips);
            put("hot_branch", work.computing);
            put("parallel_join_wait", work.waited);
            put("parallel_region_wall", tally.together);
            // The CPU waits for the device after its own part.
            put("total_moe", tally.cpu + work.waited);
            put("transfer", work.copying);
        }
        None => {
            let cpu = stats.map(|stats| stats.experts + stats.stall).unwrap_or_default();
            if cpu > Duration::ZERO {
                put("parallel_cold_lane_wall", cpu);
                put("total_moe", cpu);
            }
        }
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn sides() -> Sides {
        let tally = LaneTally {
            launched: 3,
            beside: 2,
            without_hot: 4,
            threshold: 5,
            failed: 1,
            round_trips: 6 * MS,
            cpu: 20 * MS,
            together: 9 * MS,
        };
        Sides { tally, work: LaneWork { waited: 2 * MS, copied: 64, copying: MS, ..LaneWork::default() } }
    }

    #[test]
    fn both_sides_have_the_names_of_the_original() {
        let times = times(10, None, Some(&sides()));
        let us = |name: &str| times[&format!("{name}_time_per_call_us")];
        assert_eq!((us("parallel_cold_lane_wall"), us("parallel_hot_lane_wall")), (2000.0, 600.0));
        assert_eq!(
            (us("parallel_join_wait"), us("total_moe"), us("parallel_region_wall")),
            (200.0, 2200.0, 900.0)
        );
        let launches = sides().launches();
        assert_eq!((launches.hot, launches.cold, launches.hot_zero, launches.cold_zero), (3, 2, 4, 1));
        let reasons: Vec<_> = launches.reasons.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!((launches.fallbacks, &reasons[..]), (6, &[("device_failed", 1), ("threshold", 5)][..]));
        let again = sides().since(&sides());
        assert_eq!((again.launches(), again.tally.cpu), (Launches::default(), Duration::ZERO));
    }

    #[test]
    fn without_copies_the_store_knows_the_times() {
        let stats = LayerStats { experts: 3 * MS, stall: MS, ..LayerStats::default() };
        let known = times(4, Some(&stats), None);
        assert_eq!(known["total_moe_time_per_call_us"], 1000.0);
        assert_eq!(known.len(), 2);
        assert!(times(4, Some(&LayerStats::default()), Some(&Sides::default())).is_empty());
    }
}
