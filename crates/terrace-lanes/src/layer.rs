//! A layer whose experts can have copies, and what is counted of it.

use super::lane_work::LaneWork;
use super::tally::LaneTally;
use super::worth::Worth;
use std::sync::Arc;
use terrace_ggml::devices::experts::{LayerKey, Recipe, SlotShape};
use terrace_model::{ByteSize, LayerId};
use terrace_store::BlockId;

/// A layer whose experts can have copies.
pub(super) struct HotLayer {
    pub(super) layer: LayerId,
    pub(super) lane: usize,
    /// The lane's key for the layer.
    pub(super) key: LayerKey,
    /// Its expert tensors by index in the layout, in the order of the slots' matrices.
    pub(super) tensors: Vec<u32>,
    pub(super) firsts: Vec<BlockId>,
    /// Their addresses, if they stay in memory: their experts follow each other.
    pub(super) kept: Option<Vec<usize>>,
    pub(super) shapes: Vec<SlotShape>,
    /// The grant: the maximum number of slots, for these matrices.
    pub(super) most: u32,
    pub(super) granted: Vec<SlotShape>,
    /// The memory that they take, cached because asking the device for every token would be slow.
    pub(super) memory: ByteSize,
    /// Number of its experts that can be copied to the lane at once for a node.
    pub(super) transit: u32,
    /// Bytes of an expert's matrices.
    pub(super) sizes: Vec<usize>,
    /// Elements of an output row, once adopted.
    pub(super) out_width: usize,
    /// The lane's computation of the layer's block; `None` until its graph has been seen, and if the
    /// lane cannot compute it.
    pub(super) adopted: Option<Arc<Recipe>>,
    /// Why the layer has no lane.
    pub(super) problem: Option<String>,
    pub(super) counts: Counts,
    pub(super) work: LaneWork,
    pub(super) worth: Worth,
    pub(super) tally: LaneTally,
    /// Number of copies made for all layers when the last one of this layer was; 0 before the first.
    pub(super) changed: u64,
    /// Index of its estimates, which layers of the same shape on a lane share.
    pub(super) estimates: usize,
}

/// Pairs of token and expert.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Of decoding.
    pub(super) tokens: Sides,
    /// Of prefills.
    pub(super) prompts: Sides,
}

/// Who computed pairs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sides {
    /// The lane, with copies.
    pub(super) hot: u64,
    /// The lane, with experts that were copied for the node.
    pub(super) sent: u64,
    /// The CPU.
    pub(super) cold: u64,
}

impl Counts {
    /// Those of prefills if `prefill`, otherwise those of decoding.
    pub(super) const fn of(&mut self, prefill: bool) -> &mut Sides {
        if prefill { &mut self.prompts } else { &mut self.tokens }
    }
}
