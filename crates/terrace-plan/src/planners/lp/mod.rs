//! The assignment as a linear program. The only folder that uses a solver.
//!
//! Identical layers form one group, so models of any depth are small programs. Each group has these
//! variables: `home[p]`, the number of its layers at home at place `p`; `away[c]`, the number of
//! layers of which a class `c` of matrices is streamed; and by home and class of hotness, how many
//! layers' worth of experts are on the device and in RAM. Everything else follows: a layer's
//! experts take the longest of computing on the device, with what is sent to it, computing in RAM, and
//! reading those that are in neither (`slowest`, constrained to be at least each of them). A token takes the longer of
//! all layers in sequence and all reading. So does each graph of the prompt, with costs of its own;
//! the program minimises the prompt and all tokens after it.
//!
//! Solved in fractions ([`relaxed`]) it is a lower bound of every assignment: the hit curve
//! consists of the same classes, and transfers between layers are left out. With one group per
//! layer and whole numbers ([`exact`]) it finds the best assignment itself, for models that are
//! small enough.

mod experts;
mod phase;
mod program;
mod variables;

use super::complete::Outline;
use super::kinds::{Group, grouped, merged, single};
use crate::place::assignment::Assignment;
use crate::place::costs::Costs;
use crate::place::workload::Workload;
use good_lp::{Solution, Variable};
use program::{Program, Read};
use variables::{TIME, Variant};

/// With more yes-or-no decisions than this, the program in whole numbers is not tried.
pub const EXACT_DECISIONS: usize = 16;

const VARIANTS: [Variant; 4] = [
    Variant { streams: false, misses: false },
    Variant { streams: false, misses: true },
    Variant { streams: true, misses: false },
    Variant { streams: true, misses: true },
];

/// With more kinds of layers than this the solver would take seconds (5.4 s for 94 kinds on two
/// devices). Similar layers are then treated as equal, and the result is not a bound any more.
const MOST_KINDS: usize = 16;

/// The best assignment in fractions.
#[derive(Clone, Debug, PartialEq)]
pub struct Relaxed {
    /// Lower bound of the seconds of what is expected, of this variant; `None` if similar layers were treated
    /// as equal.
    pub seconds: Option<f64>,
    /// Number of layers on each device.
    pub layers: Vec<f64>,
    /// Share of its layers' experts that each device holds.
    pub hot: Vec<f64>,
    /// Bytes of streamed matrices.
    pub streamed: f64,
    /// Streamed share of the tables.
    pub tables: f64,
}

impl Relaxed {
    /// Returns the outlines nearest to it.
    pub fn outlines(&self, work: &Workload) -> Vec<Outline> {
        let mut outlines = Vec::new();
        let devices = self.layers.len();
        // The layers of each device are rounded down or up.
        for rounding in 0..1u32 << devices {
            let layers: Vec<usize> = (0..devices)
                .map(|d| (self.layers[d] + 1e-6).floor() as usize + usize::from(rounding >> d & 1 == 1))
                .collect();
            let Some(left) = work.layers.len().checked_sub(layers.iter().sum()) else { continue };
            let sizes: Vec<u64> =
                work.matrices.iter().filter(|m| m.layer < left).map(|matrix| matrix.bytes).collect();
            let (mut streamed, mut bytes) = (0, 0.0);
            while streamed < sizes.len() && bytes + 1.0 < self.streamed {
                bytes += sizes[streamed] as f64;
                streamed += 1;
            }
            for tables_streamed in [false, true] {
                for hot in [1.0, 0.97, 0.9] {
                    let hot: Vec<f64> = self.hot.iter().map(|share| share * hot).collect();
                    for more in 0..3 {
                        let streamed = (streamed + more).min(sizes.len());
                        outlines.push(Outline {
                            layers: layers.clone(),
                            hot: hot.clone(),
                            streamed,
                            tables_streamed,
                        });
                    }
                }
            }
        }
        outlines
    }
}

/// Solves for the best assignments in fractions, one for each variant that fits.
pub fn relaxed(work: &Workload, costs: &Costs) -> Vec<Relaxed> {
    let mut groups = grouped(work, costs);
    let alike = groups.len() <= MOST_KINDS;
    if !alike {
        groups = merged(work, groups);
    }
    let solve = |&variant: &Variant| {
        let (solution, read) = Program::new(work, costs, &groups, variant, false).solve()?;
        let seconds = alike.then(|| solution.eval(&read.total) / TIME);
        Some(read_relaxed(costs, &groups, &solution, &read, seconds))
    };
    VARIANTS.iter().filter_map(solve).collect()
}

/// Returns whether [`exact`] is worth trying: there are few decisions, and no experts on devices.
pub fn is_small(work: &Workload, costs: &Costs) -> bool {
    let homes = work.layers.len() * costs.devices.len();
    let experts_on_devices = work.experts.is_some() && !costs.devices.is_empty();
    !experts_on_devices && homes + work.matrices.len() <= EXACT_DECISIONS
}

/// Solves for the best assignment of a small model; `None` if nothing fits or the solver fails. With
/// experts it is the best for caches that hit as the curve says, and near the best for others.
pub fn exact(work: &Workload, costs: &Costs) -> Option<(Assignment, f64)> {
    let groups = single(work, costs);
    let mut best: Option<(Assignment, f64)> = None;
    for variant in VARIANTS {
        let Some((solution, read)) = Program::new(work, costs, &groups, variant, true).solve() else {
            continue;
        };
        let Some(assignment) = read_whole(work, costs, &groups, &solution, &read) else { continue };
        let seconds = assignment.seconds(work, costs);
        if best.as_ref().is_none_or(|(_, least)| seconds < *least) {
            best = Some((assignment, seconds));
        }
    }
    best
}

/// Reads a solution in fractions.
fn read_relaxed(
    costs: &Costs,
    groups: &[Group],
    solution: &impl Solution,
    read: &Read,
    seconds: Option<f64>,
) -> Relaxed {
    let devices = 0..costs.devices.len();
    let layers = |device: usize| read.home.iter().map(|home| solution.value(home[device + 1])).sum();
    let hot = |device: usize| {
        let layers = solution.eval(&read.expert_layers[device]);
        if layers > 1e-6 { (solution.eval(&read.on_device[device]) / layers).clamp(0.0, 1.0) } else { 0.0 }
    };
    let streamed = groups.iter().zip(&read.away).flat_map(|(group, away)| group.items.iter().zip(away));
    Relaxed {
        seconds,
        layers: devices.clone().map(layers).collect(),
        hot: devices.map(hot).collect(),
        streamed: streamed.map(|(item, &n)| item.bytes as f64 * solution.value(n)).sum(),
        tables: solution.value(read.tables),
    }
}

/// Reads a solution in whole numbers as an assignment.
fn read_whole(
    work: &Workload,
    costs: &Costs,
    groups: &[Group],
    solution: &impl Solution,
    read: &Read,
) -> Option<Assignment> {
    let yes = |variable: Variable| solution.value(variable) > 0.5;
    let mut assignment = Assignment::resident(work);
    for (group, home) in groups.iter().zip(&read.home) {
        assignment.homes[group.layer] = home.iter().position(|&n| yes(n))?;
    }
    for (item, &n) in groups.iter().zip(&read.away).flat_map(|(group, away)| group.items.iter().zip(away)) {
        assignment.streamed[item.matrix] = yes(n);
    }
    assignment.tables_streamed = yes(read.tables);
    assignment.with_leftover(work, costs)
}
