//! Mixes that were found, compared with all possible ones.

use proptest::prelude::*;
use terrace_plan::mix::{Mix, MixError, MixOption, least_cost, mixes};

/// Returns the cost of the cheapest mix within the budget.
fn by_force(groups: &[Vec<MixOption>], budget: u64) -> Option<f64> {
    let mut all = vec![(0u64, 0.0f64)];
    for options in groups {
        all = all
            .iter()
            .flat_map(|&(bytes, cost)| options.iter().map(move |o| (bytes + o.bytes, cost + o.cost)))
            .filter(|&(bytes, _)| bytes <= budget)
            .collect();
    }
    all.into_iter().map(|(_, cost)| cost).min_by(f64::total_cmp)
}

fn holds(groups: &[Vec<MixOption>], mix: &Mix, budget: u64) {
    let chosen = || groups.iter().zip(&mix.choice).map(|(options, &option)| options[option]);
    assert_eq!(mix.bytes, chosen().map(|o| o.bytes).sum::<u64>());
    assert!((mix.cost - chosen().map(|o| o.cost).sum::<f64>()).abs() <= 1e-9 * mix.cost.max(1.0));
    assert!(mix.bytes <= budget);
}

fn options() -> impl Strategy<Value = Vec<MixOption>> {
    let option = (1u64..1000, 0.0..1.0f64).prop_map(|(bytes, cost)| MixOption { bytes, cost });
    prop::collection::vec(option, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_mix_is_much_cheaper(groups in prop::collection::vec(options(), 1..8), share in 0.0..1.0f64) {
        let least: u64 = groups.iter().map(|g| g.iter().map(|o| o.bytes).min().unwrap()).sum();
        let most: u64 = groups.iter().map(|g| g.iter().map(|o| o.bytes).max().unwrap()).sum();
        let budget = least + ((most - least) as f64 * share) as u64;
        let found = mixes(&groups, budget, 5).unwrap();
        let best = by_force(&groups, budget).unwrap();
        let bound = least_cost(&groups, budget).unwrap();
        for mix in &found {
            holds(&groups, mix, budget);
        }
        prop_assert!(found.windows(2).all(|two| two[0].cost <= two[1].cost && two[0].choice != two[1].choice));
        // The fractional optimum never costs more. Rounding costs at most one step of one group,
        // and exchanges recover most of it.
        prop_assert!(bound <= best + 1e-9);
        prop_assert!(found[0].cost >= best - 1e-9);
        prop_assert!(found[0].cost <= bound + 1.0 + 1e-9, "{} {bound}", found[0].cost);
    }
}

#[test]
fn nearly_always_it_is_the_best() {
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut best = 0;
    for _ in 0..200 {
        let mut option = || MixOption { bytes: 1 + random(1000), cost: random(1_000_000) as f64 / 1e6 };
        let groups: Vec<Vec<MixOption>> = (0..7).map(|_| (0..4).map(|_| option()).collect()).collect();
        let least: u64 = groups.iter().map(|g| g.iter().map(|o| o.bytes).min().unwrap()).sum();
        let budget = least + 1200;
        let found = &mixes(&groups, budget, 1).unwrap()[0];
        best += usize::from(found.cost <= by_force(&groups, budget).unwrap() + 1e-9);
    }
    assert!(best >= 180, "{best} of 200");
}

#[test]
fn a_model_of_many_layers_is_close_to_the_bound() {
    // Sizes like those of three types; costs differ by layer and by kind.
    let groups: Vec<Vec<MixOption>> = (0..180)
        .map(|i| {
            let weight = 0.2 + ((i * 37) % 61) as f64 / 61.0;
            [(3400, 0.0), (2600, 0.004), (1800, 0.02), (1050, 0.2)]
                .map(|(bytes, cost)| MixOption { bytes: bytes * (1 + i % 3), cost: cost * weight })
                .to_vec()
        })
        .collect();
    for budget in [400_000, 700_000, 1_100_000] {
        let found = mixes(&groups, budget, 4).unwrap();
        holds(&groups, &found[0], budget);
        let bound = least_cost(&groups, budget).unwrap();
        assert!(found[0].cost <= bound * 1.01, "{budget}: {} and {bound}", found[0].cost);
        assert_eq!(found.len(), 4);
    }
}

#[test]
fn what_cannot_be_is_said() {
    let option = |bytes, cost| MixOption { bytes, cost };
    let groups = [vec![option(10, 0.0), option(5, 1.0)], vec![option(7, 0.0)]];
    assert_eq!(mixes(&groups, 11, 1), Err(MixError::NoneFits { smallest: 12, budget: 11 }));
    assert_eq!(mixes(&groups, 12, 1).unwrap()[0].choice, [1, 0]);
    assert_eq!(mixes(&groups, 17, 1).unwrap()[0].choice, [0, 0]);
    assert_eq!(mixes(&[vec![]], 1, 1), Err(MixError::NoOptions(0)));
    assert!(matches!(mixes(&[vec![option(1, f64::NAN)]], 1, 1), Err(MixError::Cost { .. })));
    assert_eq!(mixes(&[], 0, 1).unwrap()[0].choice, [0usize; 0]);
}
