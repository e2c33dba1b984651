//! Copying blocks that are in RAM.

use super::Store;
use crate::block::BlockId;
use crate::buffers::Target;
use crate::slots::SlotState;

impl Store {
    /// Copies a block's bytes if they are in RAM, and returns whether they are. This is not a use
    /// of the block: nothing is counted, and it does not stay longer.
    ///
    /// # Panics
    /// If `dst` has another length, or the store does not have the block.
    pub fn copy_resident(&self, block: BlockId, dst: &mut [u8]) -> bool {
        let SlotState::Resident { place, .. } = self.slots.state(block) else { return false };
        let spec = &self.blocks[block.index()];
        assert_eq!(dst.len() as u64, spec.extent.len, "{spec}");
        let window = self.mapping.window(place, self.hull(block).skip, spec.extent.len);
        window.copy_to(0, Target::of(dst));
        true
    }
}
