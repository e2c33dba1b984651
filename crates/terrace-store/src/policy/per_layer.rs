//! The policy `per-layer`: a share of the arena for each layer.

use super::lists::Lists;
use super::{Policy, Population};
use crate::block::BlockId;

#[derive(Clone, Copy, Debug, Default)]
struct Layer {
    /// Bytes that it may have, in proportion to its blocks' bytes.
    share: u64,
    /// Bytes that it has.
    used: u64,
    /// True if the current search has checked it.
    asked: bool,
}

/// Gives each layer a share of the arena, with LRU within it, so that a pass over all layers cannot
/// evict the blocks of the first ones before they are used again.
///
/// A layer that has its full share makes room among its own blocks. A layer with less takes room
/// from the one that exceeds its share most (shares are not whole numbers of blocks, so some always
/// exceed theirs a little).
#[derive(Debug)]
pub struct PerLayer {
    layers: Box<[Layer]>,
    /// The layer and size of each block.
    blocks: Box<[(usize, u64)]>,
    order: Lists,
}

impl PerLayer {
    /// Makes a policy for the blocks of `population`.
    pub fn new(population: &Population) -> Self {
        let count = population.blocks.iter().map(|block| block.group as usize + 1).max().unwrap_or(0);
        let mut layers = vec![Layer::default(); count];
        let all: u128 = population.blocks.iter().map(|block| u128::from(block.size)).sum();
        for block in &population.blocks {
            layers[block.group as usize].share += block.size;
        }
        for layer in &mut layers {
            let share = u128::from(layer.share) * u128::from(population.arena) / all.max(1);
            layer.share = u64::try_from(share).unwrap_or(u64::MAX);
        }
        Self {
            layers: layers.into(),
            blocks: population.blocks.iter().map(|block| (block.group as usize, block.size)).collect(),
            order: Lists::new(population.blocks.len(), count),
        }
    }
}

impl Policy for PerLayer {
    fn on_insert(&mut self, block: BlockId) {
        let (layer, size) = self.blocks[block.index()];
        self.layers[layer].used += size;
        self.order.append(layer, block.0);
    }

    fn on_hit(&mut self, block: BlockId) {
        self.order.renew(self.blocks[block.index()].0, block.0);
    }

    fn on_evict(&mut self, block: BlockId) {
        let (layer, size) = self.blocks[block.index()];
        self.layers[layer].used -= size;
        self.order.remove(layer, block.0);
    }

    fn victim(&mut self, incoming: BlockId, evictable: &mut dyn FnMut(BlockId) -> bool) -> Option<BlockId> {
        let (own, size) = self.blocks[incoming.index()];
        let first = (self.layers[own].used + size > self.layers[own].share).then_some(own);
        self.search(first, evictable)
    }

    fn first_out(&mut self, evictable: &mut dyn FnMut(BlockId) -> bool) -> Option<BlockId> {
        self.search(None, evictable)
    }
}

impl PerLayer {
    /// Returns the oldest evictable block of layer `next`, or of the layer that exceeds its share
    /// most.
    fn search(
        &mut self,
        mut next: Option<usize>,
        evictable: &mut dyn FnMut(BlockId) -> bool,
    ) -> Option<BlockId> {
        self.layers.iter_mut().for_each(|layer| layer.asked = false);
        loop {
            let layer = match next.take() {
                Some(own) => own,
                None => {
                    let layers = self.layers.iter().enumerate().filter(|(_, layer)| !layer.asked);
                    layers.max_by_key(|(_, layer)| i128::from(layer.used) - i128::from(layer.share))?.0
                }
            };
            self.layers[layer].asked = true;
            let found = self.order.oldest_first(layer).map(BlockId).find(|block| evictable(*block));
            if found.is_some() {
                return found;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_keep_their_shares() {
        // Blocks 0..4 are in layer 0, 4..8 in layer 1; half of each fits.
        let population = Population { arena: 4 * 4096, ..Population::of_equals(8, 4) };
        let mut policy = PerLayer::new(&population);
        let first = |policy: &mut PerLayer, incoming| policy.victim(BlockId(incoming), &mut |_| true);
        [0, 1, 2, 4].into_iter().for_each(|block| policy.on_insert(BlockId(block)));
        policy.on_hit(BlockId(0));
        assert_eq!(first(&mut policy, 5), Some(BlockId(1)), "layer 0 has more than its share");
        assert_eq!(policy.first_out(&mut |_| true), Some(BlockId(1)), "whoever comes");
        policy.on_evict(BlockId(1));
        policy.on_insert(BlockId(5));
        assert_eq!(first(&mut policy, 6), Some(BlockId(4)), "layer 1 has its share, and gives");
        assert_eq!(first(&mut policy, 3), Some(BlockId(2)), "so has layer 0");
        let pinned = policy.victim(BlockId(3), &mut |block| block.0 >= 4);
        assert_eq!(pinned, Some(BlockId(4)), "where a layer can give nothing, another one must");
    }
}
