//! Rules that every policy must follow, whatever its order.

use super::hot_list::Static;
use super::*;
use crate::policy::PolicyKind;
use proptest::prelude::*;
use std::collections::BTreeSet;

const BLOCKS: u32 = 24;

#[derive(Clone, Debug)]
enum Step {
    Use(u32),
    Drop(u32),
    Evict(u32, u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..BLOCKS).prop_map(Step::Use),
        1 => (0..BLOCKS).prop_map(Step::Drop),
        3 => (0..BLOCKS, any::<u32>()).prop_map(|(incoming, mask)| Step::Evict(incoming, mask)),
    ]
}

/// Makes all policies, for four layers with six blocks each. Belady knows the uses among `steps`.
fn all(steps: &[Step]) -> Vec<(String, Box<dyn Policy>, Option<Future>)> {
    let population = Population::of_equals(BLOCKS, 6);
    let mut policies: Vec<(String, Box<dyn Policy>, Option<Future>)> = PolicyKind::SELF_CONTAINED
        .iter()
        .map(|kind| (kind.to_string(), kind.build(&population).unwrap(), None))
        .collect();
    let hot = HotList(vec![(LayerId(1), ExpertId(2)), (LayerId(0), ExpertId(5)), (LayerId(3), ExpertId(0))]);
    policies.push(("static".into(), Box::new(Static::new(&population, &hot)), None));
    let mut uses = vec![Vec::new(); BLOCKS as usize];
    for (time, step) in steps.iter().enumerate() {
        if let Step::Use(block) = step {
            uses[*block as usize].push(time as u64);
        }
    }
    let future = Future::new(uses);
    let belady = Belady::new(BLOCKS as usize, future.clone());
    policies.push(("belady".into(), Box::new(belady), Some(future)));
    policies
}

proptest! {
    #[test]
    fn victims_have_slots_are_evictable_and_are_found(steps in prop::collection::vec(step(), 1..200)) {
        for (name, mut policy, future) in all(&steps) {
            let mut resident = BTreeSet::new();
            for (time, step) in steps.iter().enumerate() {
                if let Some(future) = &future {
                    future.advance(time as u64);
                }
                match *step {
                    Step::Use(block) if resident.insert(block) => policy.on_insert(BlockId(block)),
                    Step::Use(block) => policy.on_hit(BlockId(block)),
                    Step::Drop(block) => if resident.remove(&block) {
                        policy.on_evict(BlockId(block));
                    },
                    Step::Evict(incoming, mask) => {
                        let mut asked = BTreeSet::new();
                        let victim = policy.victim(BlockId(incoming), &mut |block| {
                            asked.insert(block.0);
                            mask >> block.0 & 1 == 1
                        });
                        prop_assert!(asked.is_subset(&resident), "{name}: asked about blocks that are not there");
                        let evictable = resident.iter().any(|block| mask >> block & 1 == 1);
                        prop_assert_eq!(victim.is_some(), evictable, "{}: wrong about whether one can go", name);
                        if let Some(victim) = victim {
                            prop_assert!(mask >> victim.0 & 1 == 1, "{name}: chose a pinned block");
                            prop_assert!(resident.remove(&victim.0), "{name}: chose an absent block");
                            policy.on_evict(victim);
                        }
                    }
                }
            }
            let mut left = 0;
            while let Some(victim) = policy.first_out(&mut |_| true) {
                policy.on_evict(victim);
                left += 1;
            }
            prop_assert_eq!(left, resident.len(), "{}: every block can go in the end", name);
        }
    }

    #[test]
    fn nobody_misses_less_than_the_oracle(uses in prop::collection::vec(0..BLOCKS, 1..300), room in 1usize..20) {
        let steps: Vec<Step> = uses.iter().copied().map(Step::Use).collect();
        let mut misses = Vec::new();
        for (name, mut policy, future) in all(&steps) {
            let mut resident = BTreeSet::new();
            let mut missed = 0;
            for (time, &block) in uses.iter().enumerate() {
                if let Some(future) = &future {
                    future.advance(time as u64);
                }
                if resident.contains(&block) {
                    policy.on_hit(BlockId(block));
                    continue;
                }
                missed += 1;
                if resident.len() == room {
                    let victim = policy.victim(BlockId(block), &mut |_| true).unwrap();
                    resident.remove(&victim.0);
                    policy.on_evict(victim);
                }
                resident.insert(block);
                policy.on_insert(BlockId(block));
            }
            misses.push((missed, name));
        }
        let oracle = misses.pop().unwrap().0;
        for (missed, name) in misses {
            prop_assert!(missed >= oracle, "{name} missed {missed} times, the oracle {oracle} times");
        }
    }
}
