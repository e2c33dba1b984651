//! Frequency and recency, both fading, in equal parts.

use super::heap::Heap;
use super::{Policy, Population};
use crate::block::BlockId;

/// What is known of a block since it became resident.
#[derive(Clone, Copy, Debug, Default)]
struct Uses {
    last: u64,
    since: u64,
    count: u32,
}

/// Evicts the block with the lowest score
///
/// ```text
/// 0.5 / (1 + tokens since the last use) + 0.5 * uses / (1 + tokens since it became resident)
/// ```
///
/// where tokens are passes over the layers, counted from the order of uses: a use in an earlier layer than the one
/// before, or of a block that this pass has used, begins the next pass.
///
/// All scores change with each pass, so they are computed anew in O(resident) once per pass, and only if something has to
/// go in it; a use costs O(log n).
#[derive(Debug)]
pub struct Lfru {
    uses: Box<[Uses]>,
    layers: Box<[u32]>,
    layer: u32,
    now: u64,
    /// For which pass the scores of blocks that were not used since are right.
    scored: u64,
    /// By score (its bits: of numbers that are not negative they have the same order), then by order of use.
    order: Heap<(u64, u64)>,
    clock: u64,
    stamps: Box<[u64]>,
}

impl Lfru {
    /// For the blocks of `population`.
    pub fn new(population: &Population) -> Self {
        let blocks = population.blocks.len();
        Self {
            uses: vec![Uses::default(); blocks].into(),
            layers: population.blocks.iter().map(|block| block.group).collect(),
            layer: 0,
            // Not 0: a block with `last` 0 was never used.
            now: 1,
            scored: 1,
            order: Heap::new(blocks),
            clock: 0,
            stamps: vec![0; blocks].into(),
        }
    }

    /// Advances the clocks for a use of `block`.
    fn tick(&mut self, block: BlockId) {
        let layer = self.layers[block.index()];
        if layer < self.layer || self.uses[block.index()].last == self.now {
            self.now += 1;
        }
        self.layer = layer;
        self.clock += 1;
        self.stamps[block.index()] = self.clock;
    }

    fn score(uses: Uses, now: u64) -> f64 {
        let recency = 1.0 / (1 + now - uses.last) as f64;
        let frequency = f64::from(uses.count) / (1 + now - uses.since) as f64;
        0.5 * recency + 0.5 * frequency
    }

    fn key(&self, block: BlockId) -> (u64, u64) {
        (Self::score(self.uses[block.index()], self.now).to_bits(), self.stamps[block.index()])
    }
}

impl Policy for Lfru {
    fn on_insert(&mut self, block: BlockId) {
        self.tick(block);
        self.uses[block.index()] = Uses { last: self.now, since: self.now, count: 1 };
        let key = self.key(block);
        self.order.insert(block.0, key);
    }

    fn on_hit(&mut self, block: BlockId) {
        self.tick(block);
        let now = self.now;
        let uses = &mut self.uses[block.index()];
        (uses.last, uses.count) = (now, uses.count.saturating_add(1));
        let key = self.key(block);
        self.order.set(block.0, key);
    }

    fn on_evict(&mut self, block: BlockId) {
        self.order.remove(block.0);
    }

    fn victim(&mut self, _: BlockId, evictable: &mut dyn FnMut(BlockId) -> bool) -> Option<BlockId> {
        if self.scored != self.now {
            self.scored = self.now;
            let (uses, stamps, now) = (&self.uses, &self.stamps, self.now);
            self.order
                .rekey(|block| (Self::score(uses[block as usize], now).to_bits(), stamps[block as usize]));
        }
        self.order.first(&mut |block| evictable(BlockId(block))).map(BlockId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the formula, evaluated for every block whenever a victim is wanted.
        #[test]
        fn equals_the_formula(steps in prop::collection::vec((0u32..12, 0u8..4), 1..300)) {
            let population = Population::of_equals(12, 3);
            let mut lfru = Lfru::new(&population);
            // (last, since, count, order of use) of resident blocks
            let mut all: Vec<Option<(u64, u64, u64, usize)>> = vec![None; 12];
            let mut last_use = [0u64; 12];
            let (mut now, mut layer) = (1u64, 0u32);
            for (step, (block, action)) in steps.into_iter().enumerate() {
                let i = block as usize;
                if action < 3 {
                    let group = population.blocks[i].group;
                    if group < layer || last_use[i] == now {
                        now += 1;
                    }
                    layer = group;
                    last_use[i] = now;
                    all[i] = match all[i] {
                        None => {
                            lfru.on_insert(BlockId(block));
                            Some((now, now, 1, step))
                        }
                        Some((_, since, count, _)) => {
                            lfru.on_hit(BlockId(block));
                            Some((now, since, count + 1, step))
                        }
                    };
                } else {
                    let score = |&(last, since, count, _): &(u64, u64, u64, usize)| {
                        0.5 / (1 + now - last) as f64 + 0.5 * (count as f64 / (1 + now - since) as f64)
                    };
                    let expected = (0..12u32)
                        .filter_map(|i| all[i as usize].map(|uses| (score(&uses), uses.3, i)))
                        .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
                        .map(|least| least.2);
                    let victim = lfru.victim(BlockId(block), &mut |_| true).map(|block| block.0);
                    prop_assert_eq!(victim, expected);
                    if let Some(victim) = victim {
                        lfru.on_evict(BlockId(victim));
                        all[victim as usize] = None;
                    }
                }
            }
        }
    }
}
