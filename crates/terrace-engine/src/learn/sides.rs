//! Work of both sides of a layer, a device and the CPU, by the names of the original. All numbers
//! are sums of what was measured.

use std::collections::BTreeMap;
use std::time::Duration;
use terrace_lanes::{HotLayerReport, HotReport, LaneTally, LaneWork};
use terrace_model::learn::{LANES, Launches, LearnLayer};
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

    /// Number of times that each side computed, and reasons for not doing so.
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

/// The lane that computes the layer's pairs, as the original numbers them; 0 if several do.
pub(crate) fn lane_of(hot: &HotReport, layer: &HotLayerReport) -> usize {
    let [on] = &layer.on[..] else { return 0 };
    let lane = hot.lanes.iter().position(|(device, _)| *device == on.device);
    lane.filter(|lane| *lane < LANES).unwrap_or(0)
}

/// Notes in a layer's counts what both sides did. `in_memory`: the time of its experts where nothing
/// streams and there are no copies.
pub(crate) fn record(
    layer: &mut LearnLayer,
    stats: Option<&LayerStats>,
    sides: Option<&Sides>,
    in_memory: Duration,
) {
    layer.times = times((layer.calls, layer.lane), stats, sides, in_memory);
    layer.launches = sides.map(Sides::launches).unwrap_or_default();
    if let Some(LayerStats { hits, misses, joined, bytes_read, .. }) = stats {
        layer.launches.in_ram = *hits;
        layer.launches.from_disk = misses + joined;
        layer.launches.bytes_from_disk = bytes_read.bytes();
    }
}

/// The times of a layer that was computed `calls` times, in microseconds per call. `stats` has what
/// the CPU computed and waited for where weights stream, `sides` both sides where there are copies, on
/// this lane.
fn times(
    (calls, lane): (u64, usize),
    stats: Option<&LayerStats>,
    sides: Option<&Sides>,
    in_memory: Duration,
) -> BTreeMap<String, f64> {
    let mut times = BTreeMap::new();
    let mut put = |name: &str, time: Duration| {
        let time = (time.as_secs_f64() / calls.max(1) as f64 * 1e8).round() / 100.0;
        times.insert(format!("{name}_per_call_us"), time);
    };
    match sides.filter(|sides| sides.tally.cpu > Duration::ZERO) {
        Some(Sides { tally, work }) => {
            put("parallel_cold_lane_wall_time", tally.cpu);
            put("parallel_hot_lane_wall_time", tally.round_trips);
            put("cold_branch_time", tally.cpu);
            put("hot_branch_time", work.computing);
            put(&format!("hot{lane}_branch_time"), work.computing);
            put("parallel_join_wait_time", work.waited);
            put("parallel_region_wall_time", tally.together);
            // What the CPU did not wait for.
            put("parallel_overlap_estimate", tally.round_trips.saturating_sub(work.waited));
            // The CPU waits for the device after its own part.
            put("total_moe_time", tally.cpu + work.waited);
            put("transfer_time", work.copying);
        }
        None => {
            let cpu = stats.map(|stats| stats.experts + stats.stall).unwrap_or_default();
            let cpu = if cpu > Duration::ZERO { cpu } else { in_memory };
            if cpu > Duration::ZERO {
                put("parallel_cold_lane_wall_time", cpu);
                put("cold_branch_time", cpu);
                put("total_moe_time", cpu);
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
        let times = times((10, 1), None, Some(&sides()), MS);
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
        let known = times((4, 0), Some(&stats), None, 9 * MS);
        assert_eq!(known["total_moe_time_per_call_us"], 1000.0);
        assert_eq!(known.len(), 3);
        let idle = LayerStats::default();
        assert!(times((4, 0), Some(&idle), Some(&Sides::default()), Duration::ZERO).is_empty());
        let in_memory = times((4, 0), Some(&idle), None, 2 * MS);
        assert_eq!(in_memory["total_moe_time_per_call_us"], 500.0);
    }
}
