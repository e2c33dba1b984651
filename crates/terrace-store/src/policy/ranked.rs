//! Policies that rank each block whenever it is used, and evict the lowest.

use super::Policy;
use super::heap::Heap;
use crate::block::BlockId;

/// A policy that is defined by how a use changes a block's rank.
pub(crate) trait Ranked: Send {
    /// The rank; the lowest is evicted first.
    type Key: Copy + Ord;

    /// Notes a use of `block`, and returns its new rank.
    fn count(&mut self, block: BlockId) -> Self::Key;

    /// Returns the blocks that have slots.
    fn order(&mut self) -> &mut Heap<Self::Key>;
}

impl<R: Ranked> Policy for R {
    fn on_insert(&mut self, block: BlockId) {
        let key = self.count(block);
        self.order().insert(block.0, key);
    }

    fn on_hit(&mut self, block: BlockId) {
        let key = self.count(block);
        self.order().set(block.0, key);
    }

    fn on_evict(&mut self, block: BlockId) {
        self.order().remove(block.0);
    }

    fn victim(&mut self, _: BlockId, evictable: &mut dyn FnMut(BlockId) -> bool) -> Option<BlockId> {
        self.order().first(&mut |block| evictable(BlockId(block))).map(BlockId)
    }
}
