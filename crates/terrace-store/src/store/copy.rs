//! Copies of what is in RAM anyway.

use super::Store;
use crate::block::BlockId;
use crate::buffers::Target;
use crate::slots::SlotState;

impl Store {
    /// Copies a block's bytes, if they are in RAM; false if not. It is no use of the block: nothing is counted, and it stays no
    /// longer for it.
    ///
    /// # Panics
    /// If `dst` has another length, or the store has no such block.
    pub fn copy_resident(&self, block: BlockId, dst: &mut [u8]) -> bool {
        let SlotState::Resident { place, .. } = self.slots.state(block) else { return false };
        let spec = &self.blocks[block.index()];
        assert_eq!(dst.len() as u64, spec.extent.len, "{spec}");
        let window = self.mapping.window(place, self.hull(block).skip, spec.extent.len);
        window.copy_to(0, Target::of(dst));
        true
    }
}
