//! Outlines whose devices are filled up: by the number of layers of each of the fastest devices, with
//! no copies of experts or as many as there is room for.
//!
//! The best use of a device depends on what others hold: few layers with all of their experts on one
//! and many without on another, say. The solver's fractions and steps from neighbour to neighbour miss
//! such a plan where those between are worse.

use super::complete::Outline;
use super::greedy::improve;
use crate::place::costs::Costs;
use crate::place::workload::Workload;

/// Steps of the number of layers on each device.
const LAYER_STEPS: usize = 16;
/// Devices, the fastest, of which all numbers of layers are tried with each other.
const DEVICES: usize = 2;
/// Steps of the number of streamed matrices.
const STREAM_STEPS: usize = 4;

/// Returns the best outlines, at most `most`, the best first, each with another number of layers or
/// copies.
pub fn filled(work: &Workload, costs: &Costs, most: usize) -> Vec<(Outline, f64)> {
    let mut found: Vec<(Outline, f64)> = Vec::new();
    let copies = work.experts.is_some() && costs.hot_lanes;
    for layers in layer_counts(work, costs) {
        let Some(fullest) = fullest(work, costs, &layers) else { continue };
        let used: Vec<usize> = (0..layers.len())
            .filter(|&device| copies && layers[device] > 0 && fullest[device] > 0.0)
            .collect();
        for chosen in 0..1u32 << used.len().min(DEVICES) {
            let mut hot = vec![0.0; layers.len()];
            for (bit, &device) in used.iter().enumerate() {
                if bit >= DEVICES || chosen >> bit & 1 == 1 {
                    hot[device] = fullest[device];
                }
            }
            let mut best = None;
            with_streamed(&mut best, &layers, &hot, work, costs);
            found.extend(best);
        }
    }
    found.sort_by(|a, b| a.1.total_cmp(&b.1));
    found.truncate(most);
    found
}

/// Tries numbers of streamed matrices, from none on, until more would only free RAM that has no use.
fn with_streamed(
    best: &mut Option<(Outline, f64)>,
    layers: &[usize],
    hot: &[f64],
    work: &Workload,
    costs: &Costs,
) {
    let left = work.layers.len() - layers.iter().sum::<usize>();
    let streamable = work.matrices.iter().filter(|matrix| matrix.layer < left).count();
    let mut last = None;
    for step in 0..=STREAM_STEPS {
        let streamed = (streamable * step).div_ceil(STREAM_STEPS);
        if last.replace(streamed) == Some(streamed) {
            continue;
        }
        for tables_streamed in [false, true] {
            let outline = Outline { layers: layers.to_vec(), hot: hot.to_vec(), streamed, tables_streamed };
            let Some(assignment) = outline.complete(work, costs) else { continue };
            let all_cached = assignment.arena == assignment.cold_experts(work);
            improve(best, outline, work, costs);
            if all_cached {
                return;
            }
        }
    }
}

/// Returns numbers of layers by device: the fastest devices have each number with each of the others',
/// and the next ones what is left as far as it fits.
fn layer_counts(work: &Workload, costs: &Costs) -> Vec<Vec<usize>> {
    let all = work.layers.len();
    let step = all.div_ceil(LAYER_STEPS).max(1);
    let devices = costs.devices.len().min(DEVICES);
    let mut counts = vec![vec![]];
    for _ in 0..devices {
        let mut next = Vec::new();
        for before in counts {
            let left: usize = all - before.iter().sum::<usize>();
            for more in (0..=left).step_by(step).chain((!left.is_multiple_of(step)).then_some(left)) {
                next.push([&before[..], &[more]].concat());
            }
        }
        counts = next;
    }
    for counts in &mut counts {
        counts.resize(costs.devices.len(), 0);
    }
    counts.retain(|counts| counts.iter().any(|&layers| layers > 0));
    counts
}

/// Returns the largest share of its layers' experts that each device has room for; `None` if one has
/// no room for its layers without these.
pub fn fullest(work: &Workload, costs: &Costs, layers: &[usize]) -> Option<Vec<f64>> {
    let mut end = work.layers.len();
    let share = |(device, &count): (usize, &usize)| {
        let start = end.checked_sub(count)?;
        let held = start..end;
        end = start;
        if count == 0 {
            return Some(0.0);
        }
        let cache = |layer: usize| if work.context.offload { work.layers[layer].cache } else { 0 };
        let dense: u64 = held.clone().map(|layer| work.layers[layer].dense + cache(layer)).sum();
        let room = costs.devices[device].room.checked_sub(work.context.compute)?.checked_sub(dense)?;
        let experts = || {
            let with = held.clone().filter(|&layer| !costs.kept[layer]);
            with.filter_map(|layer| work.layers[layer].experts.as_ref())
        };
        let most = experts().map(|experts| experts.count).max().unwrap_or(0);
        let bytes = |share: f64| -> u64 {
            let of = |count: u32| (f64::from(count) * share + 1e-6).floor() as u64;
            experts().map(|e| e.bytes / u64::from(e.count) * of(e.count)).sum()
        };
        let share = |hot: u32| f64::from(hot) / f64::from(most.max(1));
        let (mut low, mut high) = (0, most + 1);
        while high - low > 1 {
            let middle = u32::midpoint(low, high);
            if bytes(share(middle)) <= room { low = middle } else { high = middle }
        }
        Some(share(low))
    };
    layers.iter().enumerate().map(share).collect()
}
