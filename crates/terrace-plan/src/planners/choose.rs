//! Choosing the best assignment that the planners find.

use super::complete::Outline;
use super::filled::{filled, fullest};
use super::greedy::{greedy, improve};
use super::lp;
use crate::place::assignment::Assignment;
use crate::place::costs::Costs;
use crate::place::workload::Workload;
use crate::plan::planner::Planner;

/// The chosen assignment.
#[derive(Clone, Debug, PartialEq)]
pub struct Chosen {
    pub assignment: Assignment,
    /// Its seconds for the expected prompt and the tokens after it.
    pub seconds: f64,
    /// The planner that found it.
    pub planner: Planner,
    /// A lower bound of these of any assignment; `None` if the solver found none.
    pub bound: Option<f64>,
    /// A lower bound of the seconds per token of any assignment; `None` if the solver found none.
    pub decode_bound: Option<f64>,
}

/// Most neighbours that are tried around an outline.
const REFINEMENTS: usize = 600;

/// Outlines with filled devices that are refined.
const FILLED: usize = 4;

/// Most devices of a linear program: with more it takes too long to solve.
const MOST_DEVICES: usize = 6;

/// Finds the best assignment; `None` if the machine cannot hold what the model needs at once.
pub fn choose(work: &Workload, costs: &Costs) -> Option<Chosen> {
    let greedy = greedy(work, costs);
    // The program does not know the user's wishes for devices; its results are checked against them
    // later.
    if costs.is_free()
        && lp::is_small(work, costs)
        && costs.devices.len() <= MOST_DEVICES
        && let Some((assignment, seconds)) = lp::exact(work, costs)
        && greedy.as_ref().is_none_or(|(_, least)| seconds <= *least)
    {
        // What caches really hit is not part of the program.
        let bound = if work.experts.is_none() { Some(seconds) } else { least(&relaxed(work, costs)) };
        let decode_bound = decode_bound(work, costs);
        return Some(Chosen { assignment, seconds, planner: Planner::Exact, bound, decode_bound });
    }
    let relaxed = relaxed(work, costs);
    let bound = least(&relaxed);
    let mut best = greedy.clone();
    for relaxed in &relaxed {
        let mut nearest = None;
        for mut outline in relaxed.outlines(work) {
            outline.layers.resize(costs.devices.len(), 0);
            outline.hot.resize(costs.devices.len(), 0.0);
            improve(&mut nearest, outline, work, costs);
        }
        better_of(&mut best, refine(nearest, false, work, costs));
    }
    if !costs.devices.is_empty() {
        better_of(&mut best, refine(greedy.clone(), false, work, costs));
        let starts = filled(work, costs, FILLED).into_iter().map(Some).chain([best.clone()]);
        for start in starts {
            better_of(&mut best, refine(start, true, work, costs));
        }
    }
    let (outline, seconds) = best?;
    let planner =
        if greedy.is_some_and(|(_, least)| least <= seconds) { Planner::Greedy } else { Planner::Lp };
    let assignment = outline.complete(work, costs).expect("it was completed to be compared");
    Some(Chosen { assignment, seconds, planner, bound, decode_bound: decode_bound(work, costs) })
}

/// Solves the program with as many devices as it can have, the fastest: then it has no bound. The
/// greedy planner uses all.
fn relaxed(work: &Workload, costs: &Costs) -> Vec<lp::Relaxed> {
    if costs.devices.len() <= MOST_DEVICES {
        return lp::relaxed(work, costs);
    }
    let devices = costs.devices[..MOST_DEVICES].to_vec();
    let few = lp::relaxed(work, &Costs { devices, ..costs.clone() });
    few.into_iter().map(|relaxed| lp::Relaxed { seconds: None, ..relaxed }).collect()
}

fn least(relaxed: &[lp::Relaxed]) -> Option<f64> {
    relaxed.iter().filter_map(|relaxed| relaxed.seconds).reduce(f64::min)
}

/// Returns a lower bound of the seconds per token, whatever prompts take.
fn decode_bound(work: &Workload, costs: &Costs) -> Option<f64> {
    let decoding = Costs { batches: Vec::new(), output: 1.0, ..costs.clone() };
    least(&relaxed(work, &decoding))
}

fn better_of(best: &mut Option<(Outline, f64)>, other: Option<(Outline, f64)>) {
    if let Some((_, seconds)) = &other
        && best.as_ref().is_none_or(|(_, least)| seconds < least)
    {
        *best = other;
    }
}

/// Moves step by step to better neighbours, which have a layer, an expert or a matrix more or less. With
/// `fills`, devices whose layers change are filled with experts, too.
fn refine(
    start: Option<(Outline, f64)>,
    fills: bool,
    work: &Workload,
    costs: &Costs,
) -> Option<(Outline, f64)> {
    let mut best = start;
    let expert = 1.0 / f64::from(work.experts.map_or(1, |(count, _)| count.max(1)));
    let mut left = REFINEMENTS;
    loop {
        let (outline, _) = best.as_ref()?;
        let mut neighbours = Vec::new();
        let mut shift = |changes: &[(usize, isize)], device: usize, share: f64| {
            let mut next = outline.clone();
            for &(device, more) in changes {
                let Some(layers) = next.layers[device].checked_add_signed(more) else { return };
                next.layers[device] = layers;
            }
            next.hot[device] = (next.hot[device] + share).clamp(0.0, 1.0);
            neighbours.push(next);
        };
        for device in 0..outline.layers.len() {
            for more in [-1, 0, 1] {
                for experts in [-8.0, -1.0, 0.0, 1.0, 8.0] {
                    shift(&[(device, more)], device, expert * experts);
                }
            }
            for other in (0..outline.layers.len()).filter(|&other| other != device) {
                shift(&[(device, 1), (other, -1)], other, 0.0);
                shift(&[(device, 1), (other, -1)], device, -expert);
            }
        }
        let moved = |changes: &[(usize, isize)]| {
            let mut layers = outline.layers.clone();
            for &(device, more) in changes {
                layers[device] = layers[device].checked_add_signed(more)?;
            }
            let hot = fullest(work, costs, &layers)?;
            Some(Outline { layers, hot, ..outline.clone() })
        };
        for device in (0..outline.layers.len()).filter(|_| fills) {
            let others = (0..outline.layers.len()).filter(|&other| other != device);
            let steps = [-2, -1, 1, 2].map(|more| vec![(device, more)]);
            let passed = others.flat_map(|other| [1, 2].map(|more| vec![(device, more), (other, -more)]));
            neighbours.extend(steps.into_iter().chain(passed).filter_map(|changes| moved(&changes)));
        }
        for step in [1, -1, 4, -4, 16, -16] {
            if let Some(streamed) = outline.streamed.checked_add_signed(step) {
                neighbours.push(Outline { streamed, ..outline.clone() });
            }
        }
        let mut improved = false;
        for neighbour in neighbours {
            if left == 0 {
                return best;
            }
            left -= 1;
            improved |= improve(&mut best, neighbour, work, costs);
        }
        if !improved {
            return best;
        }
    }
}
