//! Slots of each layer, as shares of a budget.

use proptest::prelude::*;
use terrace_model::ByteSize;
use terrace_plan::copies::{HotLayer, hot_slots};

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Each layer gets its share of the budget, which is used up but not exceeded.
    #[test]
    fn slots_are_shares(layers in prop::collection::vec((1u32..200, 1u64..10_000), 1..20), share in 0.0..1.3f64) {
        let layers: Vec<HotLayer> =
            layers.into_iter().map(|(experts, bundle)| HotLayer { experts, bundle: ByteSize(bundle) }).collect();
        let bytes = |slots: &[u32]| -> u64 {
            layers.iter().zip(slots).map(|(l, &n)| l.bundle.bytes() * u64::from(n)).sum()
        };
        let all: Vec<u32> = layers.iter().map(|layer| layer.experts).collect();
        let budget = (bytes(&all) as f64 * share) as u64;
        let slots = hot_slots(&layers, ByteSize(budget));
        prop_assert!(bytes(&slots) <= budget);
        let part = budget as f64 / bytes(&all) as f64;
        for (layer, &slots) in layers.iter().zip(&slots) {
            prop_assert!(slots <= layer.experts);
            let fair = part.min(1.0) * f64::from(layer.experts);
            prop_assert!(f64::from(slots) > fair - 1.0 - 1e-6 && f64::from(slots) < fair + 1.0 + 1e-6, "{slots}, {fair}");
        }
        if budget >= bytes(&all) {
            prop_assert_eq!(&slots, &all);
        }
    }
}
