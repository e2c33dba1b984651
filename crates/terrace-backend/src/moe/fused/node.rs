//! The contents of a fused node: a block, its lane, and its router.

use super::router::Router;
use crate::block::Block;
use terrace_ggml::cpu::custom_node;
use terrace_store::BlockId;

/// A recognised block, with everything else that is known about it before a run.
pub struct FusedBlock {
    pub block: Block,
    /// Index of its layer among the layers with lanes, if a device computes some of its experts.
    pub hot: Option<usize>,
    /// The router that chooses its experts, if it was recognised.
    pub router: Option<Router>,
}

impl FusedBlock {
    /// Returns true if it has nothing to do with the store or a device: its experts are in memory, and have no
    /// copies.
    pub const fn is_plain(&self) -> bool {
        self.block.kept && self.hot.is_none()
    }

    /// Number of tokens that are routed to its experts.
    pub fn tokens(&self) -> usize {
        // SAFETY: the block's tensors are alive during the run.
        unsafe { custom_node(self.block.ids) }.ne()[1].unsigned_abs() as usize
    }

    /// A block of the store that belongs to this layer; `None` if its experts stay in memory.
    pub fn a_block(&self) -> Option<BlockId> {
        // SAFETY: the layout outlives the graph's call.
        (!self.block.kept).then(|| unsafe { (*self.block.down.tensor).block(0) })
    }
}
