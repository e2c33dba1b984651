//! The policy `lfru`, between least frequently and least recently used: uses that fade.

use super::Population;
use super::heap::Heap;
use super::ranked::Ranked;
use crate::block::BlockId;

/// A use counts half after this many passes over the layers. A longer half-life gains little on
/// trained models, and loses with routing that repeats within few tokens.
const HALF_LIFE: f64 = 16.0;

/// Evicts the block with the lowest score, and among equals the least recently used one. The score
/// is the sum of
///
/// ```text
/// 2 ^ -(passes since the use / 16)
/// ```
///
/// over all uses, including those before an eviction: a block that was used often outlives one that
/// was used once, until it has not been used for long. Passes (a decoded token is one) are derived
/// from the order of uses: a pass begins with a use in an earlier layer than the use before, or
/// with a second use of a block.
///
/// All scores fade by the same factor, so only uses change their order; each costs O(log n). The
/// logarithm of the score at pass 0 is stored, which does not overflow.
#[derive(Debug)]
pub struct Lfru {
    /// Logarithms to base 2, positive; 0 before the first use.
    scores: Box<[f64]>,
    last: Box<[u64]>,
    layers: Box<[u32]>,
    layer: u32,
    pass: u64,
    clock: u64,
    /// Ordered by score (by its bits, which have the same order for positive numbers), then by last
    /// use.
    order: Heap<(u64, u64)>,
}

impl Lfru {
    /// Makes a policy for the blocks of `population`.
    pub fn new(population: &Population) -> Self {
        let blocks = population.blocks.len();
        Self {
            scores: vec![0.0; blocks].into(),
            last: vec![0; blocks].into(),
            layers: population.blocks.iter().map(|block| block.group).collect(),
            layer: 0,
            // Not 0, because `last` 0 means that a block was never used.
            pass: 1,
            clock: 0,
            order: Heap::new(blocks),
        }
    }
}

impl Ranked for Lfru {
    type Key = (u64, u64);

    fn count(&mut self, block: BlockId) -> (u64, u64) {
        let i = block.index();
        if self.layers[i] < self.layer || self.last[i] == self.pass {
            self.pass += 1;
        }
        self.layer = self.layers[i];
        let now = self.pass as f64 / HALF_LIFE;
        self.scores[i] = match self.last[i] {
            0 => now,
            _ => {
                now.max(self.scores[i])
                    + (-(now - self.scores[i]).abs()).exp2().ln_1p() / std::f64::consts::LN_2
            }
        };
        self.last[i] = self.pass;
        self.clock += 1;
        (self.scores[i].to_bits(), self.clock)
    }

    fn order(&mut self) -> &mut Heap<Self::Key> {
        &mut self.order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use proptest::prelude::*;

    proptest! {
        /// Compares with the sum over all uses, computed for each eviction.
        #[test]
        fn equals_the_sum(steps in prop::collection::vec((0u32..12, 0u8..4), 1..300)) {
            let population = Population::of_equals(12, 3);
            let mut lfru = Lfru::new(&population);
            let mut uses: Vec<Vec<u64>> = vec![Vec::new(); 12];
            let mut resident = [false; 12];
            let (mut pass, mut layer) = (1u64, 0u32);
            for (block, action) in steps {
                let i = block as usize;
                if action < 3 {
                    let group = population.blocks[i].group;
                    if group < layer || uses[i].last() == Some(&pass) {
                        pass += 1;
                    }
                    layer = group;
                    uses[i].push(pass);
                    match std::mem::replace(&mut resident[i], true) {
                        false => lfru.on_insert(BlockId(block)),
                        true => lfru.on_hit(BlockId(block)),
                    }
                } else {
                    let score = |i: usize| {
                        uses[i].iter().map(|&at| (-((pass - at) as f64) / HALF_LIFE).exp2()).sum::<f64>()
                    };
                    let least = (0..12).filter(|&i| resident[i]).map(score).min_by(f64::total_cmp);
                    let victim = lfru.victim(BlockId(block), &mut |_| true);
                    prop_assert_eq!(victim.is_some(), least.is_some());
                    if let (Some(victim), Some(least)) = (victim, least) {
                        // Equal except for rounding.
                        prop_assert!(score(victim.index()) <= least * (1.0 + 1e-9), "{victim:?}");
                        resident[victim.index()] = false;
                        lfru.on_evict(victim);
                    }
                }
            }
        }
    }

    #[test]
    fn often_survives_recent_and_fades() {
        let population = Population::of_equals(3, 3);
        let mut lfru = Lfru::new(&population);
        let first = |lfru: &mut Lfru| lfru.victim(BlockId(0), &mut |_| true);
        lfru.on_insert(BlockId(0));
        (0..4).for_each(|_| lfru.on_hit(BlockId(0)));
        lfru.on_insert(BlockId(1));
        assert_eq!(first(&mut lfru), Some(BlockId(1)), "used last, but once");
        // Block 2 lets time pass.
        lfru.on_insert(BlockId(2));
        (0..100).for_each(|_| lfru.on_hit(BlockId(2)));
        lfru.on_hit(BlockId(1));
        assert_eq!(first(&mut lfru), Some(BlockId(0)), "its uses are old");
    }
}
