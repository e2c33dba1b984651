//! Least recently used: a doubly linked list threaded through one array, every step O(1).

use super::Policy;
use crate::block::BlockId;

/// No block.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    /// Towards the least recently used.
    older: u32,
    /// Towards the most recently used.
    newer: u32,
    listed: bool,
}

/// Evicts the block whose last use is longest ago.
#[derive(Debug)]
pub struct Lru {
    links: Box<[Link]>,
    oldest: u32,
    newest: u32,
}

impl Lru {
    /// For blocks `0..blocks`.
    pub fn new(blocks: usize) -> Self {
        let links = vec![Link { older: NONE, newer: NONE, listed: false }; blocks].into_boxed_slice();
        Self { links, oldest: NONE, newest: NONE }
    }

    fn append(&mut self, block: u32) {
        self.links[block as usize] = Link { older: self.newest, newer: NONE, listed: true };
        match self.newest {
            NONE => self.oldest = block,
            newest => self.links[newest as usize].newer = block,
        }
        self.newest = block;
    }

    fn unlink(&mut self, block: u32) {
        let Link { older, newer, listed } = self.links[block as usize];
        debug_assert!(listed, "block {block} is not listed");
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        self.links[block as usize].listed = false;
    }
}

impl Policy for Lru {
    fn on_insert(&mut self, block: BlockId) {
        debug_assert!(!self.links[block.index()].listed, "block {block:?} is listed twice");
        self.append(block.0);
    }

    fn on_hit(&mut self, block: BlockId) {
        if self.newest != block.0 {
            self.unlink(block.0);
            self.append(block.0);
        }
    }

    fn on_evict(&mut self, block: BlockId) {
        self.unlink(block.0);
    }

    fn victim(&mut self, evictable: &mut dyn FnMut(BlockId) -> bool) -> Option<BlockId> {
        let mut at = self.oldest;
        while at != NONE {
            if evictable(BlockId(at)) {
                return Some(BlockId(at));
            }
            at = self.links[at as usize].newer;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a vector in order of use.
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
                        let victim = lru.victim(&mut |block| mask >> block.0 & 1 == 1);
                        prop_assert_eq!(victim.map(|block| block.0), expected);
                    }
                }
            }
        }
    }
}
