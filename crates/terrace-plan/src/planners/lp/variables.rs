//! The units and variables of the program.

use good_lp::{Expression, Variable, VariableDefinition, variable};

/// Units that keep the program's numbers near one: GiB and milliseconds.
pub(super) const BYTES: f64 = 1.0 / (1u64 << 30) as f64;
pub(super) const TIME: f64 = 1e3;

/// Choices that a variant makes: streaming of matrices, and experts that are missing from RAM. Each variant
/// needs fixed amounts of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    /// Matrices may be streamed, and slots for them are reserved.
    pub streams: bool,
    /// Experts may be missing, and slots for those of a token are reserved.
    pub misses: bool,
}

/// Layers of a group at one home.
pub(super) struct Lanes {
    /// Index of one of them.
    pub layer: usize,
    pub place: usize,
    pub n: Variable,
    pub most: f64,
    /// Number of layers of the group.
    pub count: f64,
    /// GiB of one layer's experts, and their number.
    pub bytes: f64,
    pub experts: f64,
}

/// Shares of a group's experts by place, for one home, in layers' worth of experts or of their uses.
pub(super) struct Held {
    /// Uses of those on the device.
    pub uses: Expression,
    /// Those on the device.
    pub share: Expression,
    /// Those on the device or in RAM.
    pub both: Expression,
    /// Uses of these.
    pub hits: Expression,
}

/// Division of a graph's experts between a lane and the CPU, in layers' worth.
pub(super) struct Divided {
    /// Uses that the lane computes.
    pub uses: Variable,
    /// Experts that it computes with.
    pub all: Expression,
    /// Seconds of sending those that it has no copies of.
    pub bus: Expression,
}

pub(super) fn count(most: f64, whole: bool) -> VariableDefinition {
    let count = variable().min(0.0).max(most);
    if whole { count.integer() } else { count }
}

pub(super) fn sum(variables: &[Variable]) -> Expression {
    variables.iter().map(|&v| Expression::from(v)).sum()
}
