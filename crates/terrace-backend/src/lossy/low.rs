//! Experts of a token that may be read in fewer bits.

use super::LossyTally;
use std::sync::Arc;
use terrace_ggml::cpu::RawTensor;
use terrace_store::{BlockId, Store};

/// The experts of one MoE block whose weights are small enough. Reused from block to block.
pub struct LowChoice {
    /// The router's choice that this belongs to; null before the first.
    pub ids: *mut RawTensor,
    pub experts: Vec<u32>,
    /// Counters of changes.
    pub tally: Arc<LossyTally>,
}

impl Default for LowChoice {
    fn default() -> Self {
        Self { ids: std::ptr::null_mut(), experts: Vec::new(), tally: Arc::default() }
    }
}

impl LowChoice {
    /// Returns true if an expert of the block with these ids may be read in fewer bits.
    pub fn allows(&self, ids: *mut RawTensor, expert: u32) -> bool {
        self.ids == ids && self.tally.low_is_usable() && self.experts.contains(&expert)
    }
}

/// Returns true if less is to be read for an expert's small copies than for its matrices. What is in a slot, or
/// on its way there, costs nothing.
pub fn reads_less(
    store: &Store,
    expert: u32,
    full: impl Iterator<Item = BlockId>,
    low: impl Iterator<Item = BlockId>,
) -> bool {
    let missing = |first: BlockId| {
        let block = BlockId(first.0 + expert);
        let there = store.is_resident(block) || store.is_being_read(block);
        if there { 0 } else { store.slot_size(block).bytes() }
    };
    low.map(missing).sum::<u64>() < full.map(missing).sum::<u64>()
}
