//! The policy `lru`: least recently used.

use super::Policy;
use super::lists::Lists;
use crate::block::BlockId;

/// Evicts the least recently used block.
#[derive(Debug)]
pub struct Lru(Lists);

impl Lru {
    /// Makes a policy for blocks `0..blocks`.
    pub fn new(blocks: usize) -> Self {
        Self(Lists::new(blocks, 1))
    }
}

impl Policy for Lru {
    fn on_insert(&mut self, block: BlockId) {
        self.0.append(0, block.0);
    }

    fn on_hit(&mut self, block: BlockId) {
        self.0.renew(0, block.0);
    }

    fn on_evict(&mut self, block: BlockId) {
        self.0.remove(0, block.0);
    }

    fn victim(&mut self, _: BlockId, evictable: &mut dyn FnMut(BlockId) -> bool) -> Option<BlockId> {
        self.0.oldest_first(0).map(BlockId).find(|block| evictable(*block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a vector in the order of use.
        #[test]
        fn equals_a_sorted_vector(steps in prop::collection::vec((0u32..16, 0u8..4, any::<u32>()), 1..300)) {
            let mut lru = Lru::new(16);
            let mut order: Vec<u32> = Vec::new();
            for (block, action, mask) in steps {
                let at = order.iter().position(|other| *other == block);
                match (action, at) {
                    (0 | 1, None) => {
                        lru.on_insert(BlockId(block));
                        order.push(block);
                    }
                    (0 | 1, Some(at)) => {
                        lru.on_hit(BlockId(block));
                        order.remove(at);
                        order.push(block);
                    }
                    (2, Some(at)) => {
                        lru.on_evict(BlockId(block));
                        order.remove(at);
                    }
                    _ => {
                        let expected = order.iter().copied().find(|block| mask >> block & 1 == 1);
                        let victim = lru.victim(BlockId(block), &mut |block| mask >> block.0 & 1 == 1);
                        prop_assert_eq!(victim.map(|block| block.0), expected);
                    }
                }
            }
        }
    }
}
