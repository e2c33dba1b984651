//! Shadow caches: what a policy would have held and missed, without any bytes.

use super::{Citizen, Policy, Population};
use crate::block::BlockId;

/// Most blocks of a sample, as a rule: enough to compare policies, and few enough to cost nothing.
const SAMPLED: usize = 1024;

/// Blocks that stand for all, with their share of the room. Experts are sampled with all of their blocks,
/// since they are requested together.
pub struct Sample {
    population: Population,
    /// Bytes of the sampled blocks.
    bytes: u64,
    /// The place of each block in the sample, from 1 on; 0: it is not sampled.
    places: Box<[u32]>,
}

impl Sample {
    pub fn of(all: &Population) -> Self {
        let every = (all.blocks.len() / SAMPLED).max(1) as u64;
        let mut places = vec![0; all.blocks.len()];
        let mut blocks: Vec<Citizen> = Vec::new();
        for (number, (citizen, place)) in (0u64..).zip(all.blocks.iter().zip(&mut places)) {
            let expert = citizen.expert.map_or(number, |expert| u64::from(expert.0));
            if mixed(expert << 32 | u64::from(citizen.group)).is_multiple_of(every) {
                blocks.push(*citizen);
                *place = u32::try_from(blocks.len()).expect("blocks are counted in 32 bits");
            }
        }
        let sum = |blocks: &[Citizen]| blocks.iter().map(|block| block.size).sum::<u64>();
        let bytes = sum(&blocks);
        let arena = u128::from(all.arena) * u128::from(bytes) / u128::from(sum(&all.blocks).max(1));
        let arena = u64::try_from(arena).unwrap_or(u64::MAX);
        Self { population: Population { blocks, arena }, bytes, places: places.into() }
    }

    /// Bytes of the sampled blocks.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The sampled blocks, and the room for them.
    pub const fn population(&self) -> &Population {
        &self.population
    }

    /// The number of a block within the sample.
    pub fn find(&self, block: BlockId) -> Option<BlockId> {
        self.places[block.index()].checked_sub(1).map(BlockId)
    }
}

/// The imagined slots of a policy.
pub struct Shadow {
    policy: Box<dyn Policy>,
    there: Box<[bool]>,
    used: u64,
    missed: f64,
}

impl Shadow {
    /// For a policy that knows `blocks` blocks.
    pub fn new(policy: Box<dyn Policy>, blocks: usize) -> Self {
        Self { policy, there: vec![false; blocks].into(), used: 0, missed: 0.0 }
    }

    /// Notes a request of a block of `population`, whose room decides what is evicted.
    pub fn request(&mut self, block: BlockId, population: &Population) {
        if self.there[block.index()] {
            return self.policy.on_hit(block);
        }
        let size = population.blocks[block.index()].size;
        self.missed += size as f64;
        while self.used + size > population.arena {
            let Some(victim) = self.policy.victim(block, &mut |_| true) else { return };
            self.there[victim.index()] = false;
            self.used -= population.blocks[victim.index()].size;
            self.policy.on_evict(victim);
        }
        self.there[block.index()] = true;
        self.used += size;
        self.policy.on_insert(block);
    }

    /// Bytes that were missed; older ones count less.
    pub const fn missed(&self) -> f64 {
        self.missed
    }

    /// Has what was missed so far count less.
    pub fn fade(&mut self, factor: f64) {
        self.missed *= factor;
    }
}

/// Numbers without a pattern, for numbers with one (the finalizer of SplitMix64).
const fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_their_share_of_everything() {
        let all = Population::of_equals(30_000, 300);
        let sample = Sample::of(&all);
        let sampled = sample.population();
        assert!((700..1500).contains(&sampled.blocks.len()), "{}", sampled.blocks.len());
        let share = sampled.arena as f64 / all.arena as f64;
        assert!((share * 30_000.0 - sampled.blocks.len() as f64).abs() < 1.0);
        let layers: std::collections::BTreeSet<u32> =
            sampled.blocks.iter().map(|block| block.group).collect();
        assert!(layers.len() > 90, "{} of 100 layers", layers.len());
        let few = Population::of_equals(40, 8);
        assert_eq!(Sample::of(&few).population(), &few, "all of them");
    }
}
