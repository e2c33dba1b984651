//! The planner without a solver: chooses the best of a fixed family of outlines.
//!
//! The family does not depend on the machine, so a machine that is faster or can hold more never
//! gets a worse outline. The result is compared with the solver's plans, and used if the solver
//! finds none.

use super::complete::Outline;
use crate::place::costs::Costs;
use crate::place::workload::Workload;

/// Steps of the number of layers on devices.
const LAYER_STEPS: usize = 16;
/// Steps of the share of experts on devices.
const HOT_STEPS: u32 = 8;
/// Every subset of this many devices, the fastest, is tried; other devices are used with each
/// subset.
const SUBSET_DEVICES: usize = 2;
/// Steps of the number of streamed matrices if there are devices; without devices every number is
/// tried.
const STREAM_STEPS: usize = 32;

/// Finds the best outline of the family, with the seconds of what is expected; `None` if none fits.
pub fn greedy(work: &Workload, costs: &Costs) -> Option<(Outline, f64)> {
    let mut best = None;
    for (layers, hot) in device_outlines(work, costs) {
        let left = work.layers.len() - layers.iter().sum::<usize>();
        let streamable = work.matrices.iter().filter(|matrix| matrix.layer < left).count();
        let steps = if costs.devices.is_empty() { streamable.max(1) } else { STREAM_STEPS };
        let mut last = None;
        'steps: for step in 0..=steps {
            let streamed = (streamable * step).div_ceil(steps);
            if last.replace(streamed) == Some(streamed) {
                continue;
            }
            for tables_streamed in [false, true] {
                let outline = Outline { layers: layers.clone(), hot: hot.clone(), streamed, tables_streamed };
                let Some(assignment) = outline.complete(work, costs) else { continue };
                let all_cached = assignment.arena == assignment.cold_experts(work);
                keep(&mut best, outline, assignment.seconds(work, costs));
                if all_cached {
                    // Streaming more would only free RAM that has no use.
                    break 'steps;
                }
            }
        }
    }
    best
}

/// Replaces `best` if the outline fits and is faster. Returns whether it was replaced.
pub fn improve(best: &mut Option<(Outline, f64)>, outline: Outline, work: &Workload, costs: &Costs) -> bool {
    match outline.complete(work, costs) {
        Some(assignment) => keep(best, outline, assignment.seconds(work, costs)),
        None => false,
    }
}

fn keep(best: &mut Option<(Outline, f64)>, outline: Outline, seconds: f64) -> bool {
    let better = best.as_ref().is_none_or(|(_, least)| seconds < *least);
    if better {
        *best = Some((outline, seconds));
    }
    better
}

/// Returns the family's layers and shares of experts by device, with the fastest devices filled
/// first.
fn device_outlines(work: &Workload, costs: &Costs) -> Vec<(Vec<usize>, Vec<f64>)> {
    let none = (vec![0; costs.devices.len()], vec![0.0; costs.devices.len()]);
    let mut all = vec![none];
    if costs.devices.is_empty() {
        return all;
    }
    let shares = match work.experts {
        Some(_) if costs.hot_lanes => HOT_STEPS,
        Some(_) => 1,
        None => 0,
    };
    // A device may be better left out, if transfers of activations cost more than it gains.
    let subsets: Vec<u32> = (1..1u32 << costs.devices.len().min(SUBSET_DEVICES)).collect();
    let counts: Vec<usize> = match costs.device_layers {
        Some(asked) => vec![asked],
        None => (1..=LAYER_STEPS).map(|step| (work.layers.len() * step).div_ceil(LAYER_STEPS)).collect(),
    };
    for (count, subset) in counts.iter().flat_map(|&count| subsets.iter().map(move |&subset| (count, subset)))
    {
        for share in 0..=shares {
            let share = if shares == 0 { 0.0 } else { f64::from(share) / f64::from(shares) };
            if let Some(layers) = fill(work, costs, subset, count, share)
                && all.last().is_none_or(|last| last.0 != layers || last.1[0] != share)
            {
                all.push((layers, vec![share; costs.devices.len()]));
            }
        }
    }
    all
}

/// Distributes the last `count` layers over a subset of the devices, the fastest first; `None` if
/// they do not fit.
fn fill(work: &Workload, costs: &Costs, subset: u32, count: usize, share: f64) -> Option<Vec<usize>> {
    let mut layers = work.layers.iter().enumerate().rev().take(count).peekable();
    let mut counts = Vec::new();
    for (index, device) in costs.devices.iter().enumerate() {
        let left_out = index < SUBSET_DEVICES && subset >> index & 1 == 0;
        let mut room = if left_out { 0 } else { device.room.saturating_sub(work.context.compute) };
        let mut held = 0;
        while let Some(&(at, layer)) = layers.peek() {
            let experts = layer.experts.as_ref().filter(|_| !costs.kept[at]).map_or(0, |experts| {
                let hot = (f64::from(experts.count) * share + 1e-6).floor() as u64;
                experts.bytes / u64::from(experts.count) * hot
            });
            let cache = if work.context.offload { layer.cache } else { 0 };
            let Some(left) = room.checked_sub(layer.dense + cache + experts) else { break };
            room = left;
            held += 1;
            layers.next();
        }
        counts.push(held);
    }
    layers.peek().is_none().then_some(counts)
}
