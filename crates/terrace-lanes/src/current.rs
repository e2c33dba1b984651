//! The node that lanes are computing a part of.

use super::places::Places;
use std::time::{Duration, Instant};

/// The node that is being computed. Reused for its buffers.
#[derive(Default)]
pub(super) struct Node {
    /// The layer that a lane is computing.
    pub busy: Option<usize>,
    /// True if it has so many tokens that its pairs are chosen as those of prompts are.
    pub sweep: bool,
    /// True if its pass is a prefill.
    pub prefill: bool,
    /// Pairs of the job's experts with copies, and of the others.
    pub pairs: [usize; 2],
    /// By touched expert, what the lane does with it.
    pub parts: Vec<LaneShare>,
    /// Touched experts: those that have copies, then the others, each with the most pairs first.
    pub order: Vec<usize>,
    /// The touched experts that are copied for the node, in the job's order.
    pub sent: Vec<usize>,
    /// Number of them that have been handed over.
    pub handed: usize,
    /// Output rows, in the order of the job's pairs.
    pub outputs: Vec<usize>,
    pub places: Places,
    /// The layer of which the CPU is computing a part.
    pub measured: Option<Measured>,
}

/// A node that is being measured.
#[derive(Clone, Copy)]
pub(super) struct Measured {
    /// Its layer.
    pub index: usize,
    /// Pairs of the CPU.
    pub pairs: usize,
    /// When it began, and how long thread 0 had waited for reads by then.
    pub began: Instant,
    pub waited: Duration,
}

/// Work of a lane with an expert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LaneShare {
    /// Nothing: the CPU computes it.
    #[default]
    None,
    /// Computes it with its copy.
    Copy,
    /// Computes it with bytes that are copied for this node.
    Sent,
}
