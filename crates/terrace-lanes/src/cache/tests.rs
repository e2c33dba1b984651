//! The choice of experts, compared with plain counting.

use super::*;
use crate::scores::HALF_LIFE;
use proptest::prelude::*;

/// An event in the life of a cache.
#[derive(Clone, Debug)]
enum Event {
    Used { layer: usize, expert: u32, pairs: u32 },
    Pass(u32),
    Exchange(u64),
    Vacate { layer: usize, slot: u32 },
}

/// Experts, bundle and slots of a layer.
fn layer() -> impl Strategy<Value = (u32, u64, u32)> {
    (2u32..12).prop_flat_map(|experts| (Just(experts), 1u64..100, 0..=experts))
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0usize..2, 0u32..5, 1u32..60)
            .prop_map(|(layer, expert, pairs)| Event::Used { layer, expert, pairs }),
        2 => (1u32..40).prop_map(Event::Pass),
        3 => (0u64..300).prop_map(Event::Exchange),
        1 => (0usize..4, 0u32..12).prop_map(|(layer, slot)| Event::Vacate { layer, slot }),
    ]
}

/// Every use, with its time.
#[derive(Default)]
struct Uses(Vec<(usize, u32, u32, u64)>);

impl Uses {
    fn score(&self, layer: usize, expert: u32, now: u64) -> f64 {
        let of = self.0.iter().filter(|(l, e, ..)| (*l, *e) == (layer, expert));
        of.map(|(.., pairs, at)| f64::from(*pairs) * 0.5f64.powf((now - at) as f64 / f64::from(HALF_LIFE)))
            .sum()
    }
}

/// Tolerance for rounding.
const SLACK: f64 = 1e-9;

/// The slots as a plain map.
type Held = Vec<Vec<Option<u32>>>;

/// The best gain per byte of any exchange, found by trying all. Thresholds are raised by the
/// relative `slack`, since values at a threshold may round either way.
fn best(layers: &[(u32, u64, u32)], held: &Held, uses: &Uses, now: u64, slack: f64) -> f64 {
    let mut best = 0.0f64;
    for (layer, &(experts, bundle, _)) in layers.iter().enumerate() {
        for come in (0..experts).filter(|expert| !held[layer].contains(&Some(*expert))) {
            let new = uses.score(layer, come, now);
            for slot in &held[layer] {
                let old = slot.map_or(0.0, |gone| uses.score(layer, gone, now));
                let pays = match slot {
                    None => new > 0.0,
                    Some(_) => new > old * 1.25 * (1.0 + slack) && new - old > 2.0 * (1.0 + slack),
                };
                if pays {
                    best = best.max((new - old) / bundle as f64);
                }
            }
        }
    }
    best
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each exchange is the best possible, bytes stay within the grants, and slots and experts
    /// agree.
    #[test]
    fn exchanges_are_the_best(
        layers in prop::collection::vec(layer(), 1..4),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut cache = HotCache::new(layers.iter().map(|&(n, bundle, slots)| (n, ByteSize(bundle), slots)));
        let mut held: Held = layers.iter().map(|&(.., slots)| vec![None; slots as usize]).collect();
        let (mut uses, mut now) = (Uses::default(), 0u64);
        let largest = layers.iter().map(|&(_, bundle, _)| bundle).max().unwrap();
        let mut credit = 0u64;
        let mut out: Vec<Exchange> = Vec::new();
        for event in events {
            match event {
                Event::Used { layer, expert, pairs } => {
                    if layers.get(layer).is_some_and(|&(experts, ..)| expert < experts) {
                        cache.used(layer, expert, pairs);
                        uses.0.push((layer, expert, pairs, now));
                    }
                }
                Event::Pass(tokens) => {
                    cache.pass(tokens);
                    now += u64::from(tokens);
                }
                Event::Vacate { layer, slot } => {
                    if held.get(layer).is_some_and(|slots| (slot as usize) < slots.len()) {
                        cache.vacate(layer, slot);
                        held[layer][slot as usize] = None;
                    }
                }
                Event::Exchange(grant) => {
                    credit = (credit + grant).min(largest.max(grant));
                    cache.exchanges(ByteSize(grant), &mut out);
                    for exchange in &out {
                        let Exchange { layer, slot, expert, instead_of } = *exchange;
                        prop_assert_eq!(held[layer][slot as usize], instead_of);
                        prop_assert!(!held[layer].contains(&Some(expert)));
                        let score = |expert| uses.score(layer, expert, now);
                        let gain = score(expert) - instead_of.map_or(0.0, score);
                        let gain = gain / layers[layer].1 as f64;
                        let [least, most] = [SLACK, -SLACK].map(|slack| best(&layers, &held, &uses, now, slack));
                        let near = gain >= least * (1.0 - 1e-6) && gain <= most * (1.0 + 1e-6);
                        prop_assert!(near, "{exchange:?} gains {gain}, but {least} to {most} is possible");
                        credit = credit.checked_sub(layers[layer].1).unwrap();
                        held[layer][slot as usize] = Some(expert);
                    }
                    // It ends when nothing is worthwhile, or the best is too large for the
                    // remaining credit.
                    let left = best(&layers, &held, &uses, now, SLACK);
                    prop_assert!(left == 0.0 || credit < largest || left < 1e-9, "{left} left with {credit}");
                }
            }
            for (layer, slots) in held.iter().enumerate() {
                prop_assert_eq!(cache.held(layer).map(|(_, held)| held).collect::<Vec<_>>(), &slots[..]);
                for expert in 0..layers[layer].0 {
                    let slot = slots.iter().position(|held| *held == Some(expert));
                    prop_assert_eq!(cache.slot_of(layer, expert).map(|slot| slot as usize), slot);
                }
            }
        }
    }

    /// Filling takes the most used experts of earlier runs, after which there is nothing to
    /// exchange.
    #[test]
    fn filling_takes_the_most_used(counts in prop::collection::vec(0u64..1000, 2..40), slots in 1u32..40) {
        let experts = counts.len() as u32;
        let slots = slots.min(experts);
        let mut cache = HotCache::new([(experts, ByteSize(10), slots)]);
        cache.assume(0, &counts, 8);
        for exchange in cache.fill(0) {
            cache.apply(exchange);
        }
        let mut best = counts.clone();
        best.sort_unstable_by(|a, b| b.cmp(a));
        best.truncate(slots as usize);
        best.retain(|&count| count > 0);
        let mut held: Vec<u64> = cache.held(0).filter_map(|(_, held)| held).map(|expert| counts[expert as usize]).collect();
        held.sort_unstable_by(|a, b| b.cmp(a));
        prop_assert_eq!(held, best);
        let mut out = Vec::new();
        cache.exchanges(ByteSize(1000), &mut out);
        prop_assert!(out.is_empty());
    }
}

/// Experts used now replace those used long ago, and experts of equal use do not alternate.
#[test]
fn the_new_replaces_the_old_once() {
    let mut cache = HotCache::new([(4, ByteSize(10), 1)]);
    let mut out = Vec::new();
    let mut exchanges = 0;
    let mut run = |cache: &mut HotCache, experts: &[u32], tokens: u32| {
        let before = exchanges;
        for _ in 0..tokens {
            for &expert in experts {
                cache.used(0, expert, 1);
            }
            cache.pass(1);
            cache.exchanges(ByteSize(10), &mut out);
            exchanges += out.len();
        }
        exchanges - before
    };
    assert_eq!(run(&mut cache, &[0], 2000), 1);
    assert_eq!(run(&mut cache, &[0, 1], 5000), 0, "alike in the end");
    assert_eq!(run(&mut cache, &[2], 2000), 1);
    assert_eq!(cache.slot_of(0, 2), Some(0));
}
