//! What a fused node stands for: a block, where copies of its experts are, and what chooses them.

use super::router::Router;
use crate::block::Block;
use terrace_store::BlockId;

/// A recognised block, with what else is known of it before a run.
pub struct FusedBlock {
    pub block: Block,
    /// Which of the model's layers with lanes it is, if a device computes some of its experts.
    pub hot: Option<usize>,
    /// What chooses its experts, if that was recognised.
    pub router: Option<Router>,
}

impl FusedBlock {
    /// One of the store's blocks of this layer.
    pub fn a_block(&self) -> BlockId {
        // SAFETY: the layout outlives the graph's call.
        unsafe { (*self.block.down.tensor).block(0) }
    }
}
