//! The policy `auto`: the one of several that would have read least lately.

use super::lfru::Lfru;
use super::lfu::Lfu;
use super::lru::Lru;
use super::per_layer::PerLayer;
use super::shadow::{Sample, Shadow};
use super::{Policy, Population};
use crate::block::BlockId;

/// Another policy is followed if it reads less than this share of what the present one does: a difference
/// that is worth what is in the wrong order at first.
const WORTH: f64 = 0.97;
/// Earlier misses count less by this factor after each comparison.
const FADE: f64 = 0.75;

/// Follows the policy that would have read the fewest bytes lately, by shadow caches: each policy manages
/// imagined slots for a sample of the blocks, with their share of the room. The orders of all policies
/// are kept up to date, so that another one can be followed at any time.
pub struct Auto {
    candidates: Vec<Candidate>,
    /// The one that is followed.
    chosen: usize,
    sample: Sample,
    /// Bytes of the sample that were requested since the last comparison.
    requested: u64,
}

type Make = fn(&Population) -> Box<dyn Policy>;

struct Candidate {
    /// The order of the blocks that have slots.
    order: Box<dyn Policy>,
    shadow: Shadow,
}

impl Auto {
    /// Makes a policy for the blocks of `population`. It begins as LRU.
    pub fn new(population: &Population) -> Self {
        let sample = Sample::of(population);
        let make: [Make; 4] = [
            |population| Box::new(Lru::new(population.blocks.len())),
            |population| Box::new(Lfru::new(population)),
            |population| Box::new(Lfu::new(population.blocks.len())),
            |population| Box::new(PerLayer::new(population)),
        ];
        let candidate = |make: Make| Candidate {
            order: make(population),
            shadow: Shadow::new(make(sample.population()), sample.population().blocks.len()),
        };
        let candidates = make.into_iter().map(candidate).collect();
        Self { candidates, chosen: 0, sample, requested: 0 }
    }

    /// Notes a request in the shadow caches.
    fn imagine(&mut self, block: BlockId) {
        let Some(sampled) = self.sample.find(block) else { return };
        for candidate in &mut self.candidates {
            candidate.shadow.request(sampled, self.sample.population());
        }
        self.requested += self.sample.population().blocks[sampled.index()].size;
        if self.requested > self.sample.bytes() {
            self.requested = 0;
            self.compare();
        }
    }

    fn compare(&mut self) {
        let missed = |candidate: &Candidate| candidate.shadow.missed();
        let best = (0..self.candidates.len())
            .min_by(|&a, &b| missed(&self.candidates[a]).total_cmp(&missed(&self.candidates[b])))
            .expect("there are several");
        if missed(&self.candidates[best]) < WORTH * missed(&self.candidates[self.chosen]) {
            self.chosen = best;
        }
        self.candidates.iter_mut().for_each(|candidate| candidate.shadow.fade(FADE));
    }
}

impl Policy for Auto {
    fn on_insert(&mut self, block: BlockId) {
        self.candidates.iter_mut().for_each(|candidate| candidate.order.on_insert(block));
        self.imagine(block);
    }

    fn on_hit(&mut self, block: BlockId) {
        self.candidates.iter_mut().for_each(|candidate| candidate.order.on_hit(block));
        self.imagine(block);
    }

    fn on_evict(&mut self, block: BlockId) {
        self.candidates.iter_mut().for_each(|candidate| candidate.order.on_evict(block));
    }

    fn victim(&mut self, incoming: BlockId, evictable: &mut dyn FnMut(BlockId) -> bool) -> Option<BlockId> {
        self.candidates[self.chosen].order.victim(incoming, evictable)
    }

    fn first_out(&mut self, evictable: &mut dyn FnMut(BlockId) -> bool) -> Option<BlockId> {
        self.candidates[self.chosen].order.first_out(evictable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTO: Make = |population| Box::new(Auto::new(population));
    const LRU: Make = |population| Box::new(Lru::new(population.blocks.len()));

    /// Number of these requests that hit, with slots for half of 12 blocks in four layers.
    fn hits(make: Make, requests: impl Iterator<Item = u32>) -> u32 {
        let population = Population::of_equals(12, 3);
        let mut shadow = Shadow::new(make(&population), population.blocks.len());
        let mut all = 0;
        for block in requests {
            shadow.request(BlockId(block), &population);
            all += 1;
        }
        all - (shadow.missed() / population.blocks[0].size as f64) as u32
    }

    /// Blocks used twice in each cycle are worth keeping, though more is used in between than there is room
    /// for.
    #[test]
    fn cycles_are_not_left_to_lru() {
        let cycle = [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 7, 8, 9, 10, 11];
        let cycles = || cycle.into_iter().cycle().take(150 * cycle.len());
        assert_eq!(hits(LRU, cycles()), 0);
        let best = hits(|population| Box::new(Lfu::new(population.blocks.len())), cycles());
        let auto = hits(AUTO, cycles());
        assert!(best > 400 && auto * 10 > best * 9, "{auto} of {best}");
    }

    /// It follows LRU where nothing else is better by enough.
    #[test]
    fn what_is_used_again_at_once_is_left_to_lru() {
        let pairs = || (0..1200).map(|step| step / 2 * 5 % 12);
        assert_eq!(hits(AUTO, pairs()), hits(LRU, pairs()));
    }
}
