//! Which block goes when room is needed.
//!
//! One file per policy. A policy only orders blocks: it never reads, frees or waits.

mod lru;

pub use lru::Lru;

use crate::block::BlockId;
use crate::config::{ParseChoiceError, choice};
use std::fmt;
use std::str::FromStr;

choice! {
    /// The policies.
    PolicyKind, "the eviction policy", "lru" {
        /// The least recently used block goes first.
        #[default]
        Lru = "lru",
    }
}

impl PolicyKind {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Lru];

    /// A fresh policy for blocks `0..blocks`.
    pub(crate) fn build(self, blocks: usize) -> Box<dyn Policy> {
        match self {
            Self::Lru => Box::new(Lru::new(blocks)),
        }
    }
}

/// An order of eviction over the resident blocks.
pub trait Policy: Send {
    /// `block` became resident; it was not before.
    fn on_insert(&mut self, block: BlockId);
    /// `block` is resident and was asked for again.
    fn on_hit(&mut self, block: BlockId);
    /// `block` is resident no more, whatever the reason.
    fn on_evict(&mut self, block: BlockId);
    /// The first block in the order of eviction for which `evictable` says yes. It stays in the order until
    /// [`Policy::on_evict`].
    fn victim(&mut self, evictable: &mut dyn FnMut(BlockId) -> bool) -> Option<BlockId>;
}

/// What every policy must do, whatever its order.
#[cfg(test)]
mod conformance {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Step {
        Use(u32),
        Drop(u32),
        Evict(u32),
    }

    fn step(blocks: u32) -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..blocks).prop_map(Step::Use),
            1 => (0..blocks).prop_map(Step::Drop),
            3 => any::<u32>().prop_map(Step::Evict),
        ]
    }

    proptest! {
        #[test]
        fn victims_are_resident_evictable_and_found(steps in prop::collection::vec(step(24), 1..200)) {
            for kind in PolicyKind::ALL {
                let mut policy = kind.build(24);
                let mut resident = BTreeSet::new();
                for step in &steps {
                    match *step {
                        Step::Use(block) if resident.insert(block) => policy.on_insert(BlockId(block)),
                        Step::Use(block) => policy.on_hit(BlockId(block)),
                        Step::Drop(block) => if resident.remove(&block) {
                            policy.on_evict(BlockId(block));
                        },
                        Step::Evict(mask) => {
                            let mut asked = BTreeSet::new();
                            let victim = policy.victim(&mut |block| {
                                asked.insert(block.0);
                                mask >> block.0 & 1 == 1
                            });
                            prop_assert!(asked.is_subset(&resident), "{kind}: asked about blocks that are not there");
                            let evictable = resident.iter().any(|block| mask >> block & 1 == 1);
                            prop_assert_eq!(victim.is_some(), evictable, "{}: wrong about whether one can go", kind);
                            if let Some(victim) = victim {
                                prop_assert!(mask >> victim.0 & 1 == 1, "{kind}: chose a pinned block");
                                prop_assert!(resident.remove(&victim.0), "{kind}: chose an absent block");
                                policy.on_evict(victim);
                            }
                        }
                    }
                }
                let mut left = 0;
                while let Some(victim) = policy.victim(&mut |_| true) {
                    policy.on_evict(victim);
                    left += 1;
                }
                prop_assert_eq!(left, resident.len(), "{}: every resident block can go in the end", kind);
            }
        }
    }
}
