//! The policy `lfu`: least frequently used.

use super::heap::Heap;
use super::ranked::Ranked;
use crate::block::BlockId;

/// Evicts the block with the fewest uses since the start, and among equals the least recently used
/// one. Counts survive evictions, so a block that is read again continues with its count.
#[derive(Debug)]
pub struct Lfu {
    uses: Box<[u32]>,
    clock: u64,
    /// Ordered by uses, then by last use.
    order: Heap<(u32, u64)>,
}

impl Lfu {
    /// Makes a policy for blocks `0..blocks`.
    pub fn new(blocks: usize) -> Self {
        Self { uses: vec![0; blocks].into(), clock: 0, order: Heap::new(blocks) }
    }
}

impl Ranked for Lfu {
    type Key = (u32, u64);

    fn count(&mut self, block: BlockId) -> (u32, u64) {
        self.clock += 1;
        let uses = &mut self.uses[block.index()];
        *uses = uses.saturating_add(1);
        (*uses, self.clock)
    }

    fn order(&mut self) -> &mut Heap<Self::Key> {
        &mut self.order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;

    #[test]
    fn few_uses_go_first_then_old_ones_and_uses_are_remembered() {
        let mut lfu = Lfu::new(3);
        let first = |lfu: &mut Lfu| lfu.victim(BlockId(0), &mut |_| true);
        (0..3).for_each(|block| lfu.on_insert(BlockId(block)));
        lfu.on_hit(BlockId(0));
        lfu.on_hit(BlockId(0));
        assert_eq!(first(&mut lfu), Some(BlockId(1)), "one use, as 2, but longer ago");
        lfu.on_hit(BlockId(1));
        assert_eq!(first(&mut lfu), Some(BlockId(2)));
        lfu.on_evict(BlockId(2));
        lfu.on_insert(BlockId(2));
        lfu.on_hit(BlockId(2));
        assert_eq!(first(&mut lfu), Some(BlockId(1)), "two uses; 2 has three, two of this stay");
    }
}
