//! Scores of experts and slots of layers, compared with the documented formulas written down
//! plainly.

use proptest::prelude::*;
use terrace_model::ByteSize;
use terrace_plan::copies::{HotLayer, LayerUse, Uses, Weighting, scores, slots_by_worth, weights};

/// A layer's experts (uses, and the share of them on a device) and times.
type Drawn = (Vec<(u64, f64)>, [f64; 5]);

fn layers() -> impl Strategy<Value = Vec<LayerUse>> {
    let expert = (0u64..5_000, 0.0..1.0f64);
    let time = prop_oneof![Just(0.0), 1.0..5_000.0f64];
    let layer = (
        prop::collection::vec(expert, 1..12),
        [time.clone(), time.clone(), time.clone(), time.clone(), time],
    );
    prop::collection::vec(layer, 1..8).prop_map(|layers| {
        let layer = |(index, (experts, times)): (usize, Drawn)| {
            let uses = |(expert, (hits, share)): (usize, (u64, f64))| Uses {
                expert: expert as u32,
                hits,
                hot: (hits as f64 * share) as u64,
            };
            let [join_wait_us, hot_us, cold_us, cold_pairs, total_us] = times;
            let experts = experts.into_iter().enumerate().map(uses).collect();
            LayerUse { layer: index as u32, experts, join_wait_us, hot_us, cold_us, cold_pairs, total_us }
        };
        layers.into_iter().enumerate().map(layer).collect()
    })
}

/// "first positive of: parallel_join_wait_us; (cold_lane_wall - hot_lane_wall); cold_slots_per_call;
/// wait_per_cold_slot_us".
fn pressure(layer: &LayerUse) -> f64 {
    if layer.join_wait_us > 0.0 {
        layer.join_wait_us
    } else if layer.cold_us - layer.hot_us > 0.0 {
        layer.cold_us - layer.hot_us
    } else {
        // Without a positive wait the fourth is not positive either.
        layer.cold_pairs.max(0.0)
    }
}

/// The weight of layer `at` by the formulas as documented.
fn weight(mode: Weighting, c: f64, all: &[LayerUse], at: usize) -> f64 {
    let p: Vec<f64> = all.iter().map(pressure).collect();
    let mut positive: Vec<f64> = p.iter().copied().filter(|p| *p > 0.0).collect();
    positive.sort_by(f64::total_cmp);
    let within = |x: f64, lo: f64, hi: f64| {
        if x < lo {
            lo
        } else if x > hi {
            hi
        } else {
            x
        }
    };
    match mode {
        Weighting::Pressure => {
            if c <= 0.0 || p[at] <= 0.0 {
                return 1.0;
            }
            let avg = positive.iter().sum::<f64>() / positive.len() as f64;
            within(1.0 + c * (p[at] / avg - 1.0), 1.0 - 0.30 * c, 1.0 + 0.60 * c)
        }
        Weighting::SmoothPressure => {
            if positive.is_empty() {
                return 1.0;
            }
            let at_percent = |q: f64| {
                let x = q * (positive.len() as f64 - 1.0);
                let i = x as usize;
                let next = positive[(i + 1).min(positive.len() - 1)];
                positive[i] * (1.0 - (x - i as f64)) + next * (x - i as f64)
            };
            let (mut lo, mut hi) = (at_percent(0.10), at_percent(0.90));
            if hi <= lo {
                (lo, hi) = (positive[0], positive[positive.len() - 1]);
            }
            let n = if hi > lo { within((p[at] - lo) / (hi - lo), 0.0, 1.0) } else { 0.0 };
            1.0 + 0.30 * c * n.sqrt()
        }
        Weighting::Time => {
            let t: Vec<f64> =
                all.iter().zip(&p).map(|(l, p)| if l.total_us > 0.0 { l.total_us } else { *p }).collect();
            let (min, max) =
                (t.iter().copied().reduce(f64::min).unwrap(), t.iter().copied().reduce(f64::max).unwrap());
            if max <= min {
                return 1.0;
            }
            let n = (t[at] - min) / (max - min);
            let (lo, hi) = (1.0 - 0.60 * c, 1.0 + 0.80 * c);
            within(lo + n * (hi - lo), lo, hi)
        }
        _ => 1.0,
    }
}

/// The score of an expert by the formulas as documented; `None` if it was not used.
fn score(mode: Weighting, c: f64, all: &[LayerUse], at: usize, uses: &Uses) -> Option<f64> {
    if uses.hits == 0 {
        return None;
    }
    let ranks = |layer: &LayerUse| layer.experts.iter().filter(|other| other.hits > 0).count();
    let rank = all[at]
        .experts
        .iter()
        .filter(|other| other.hits > uses.hits || (other.hits == uses.hits && other.expert < uses.expert))
        .count();
    let of = |most: usize| (most - rank) as f64 * 1e6 + uses.hits.min(999_999) as f64;
    Some(match mode {
        Weighting::Flat => of(all.iter().map(ranks).max().unwrap()),
        Weighting::Balanced => of(ranks(&all[at])),
        Weighting::Even | Weighting::Uses => uses.hits as f64,
        mode => {
            let bonus = if uses.hot > 0 { 0.05 * uses.hot as f64 } else { 0.0 };
            (uses.hits as f64 * weight(mode, c, all, at) + bonus).round().max(1.0)
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn scores_are_those_of_the_formulas(all in layers(), c in 0.0..=1.0f64) {
        for mode in Weighting::ALL {
            let weights = weights(mode, c, &all);
            for (at, got) in weights.iter().enumerate() {
                prop_assert!((got - weight(mode, c, &all, at)).abs() < 1e-9, "{mode}: {got}");
            }
            let scored = scores(mode, c, &all);
            let used = all.iter().flat_map(|layer| &layer.experts).filter(|uses| uses.hits > 0).count();
            prop_assert_eq!(scored.len(), used);
            for found in &scored {
                let uses = all[found.layer].experts.iter().find(|uses| uses.expert == found.expert).unwrap();
                let expected = score(mode, c, &all, found.layer, uses).unwrap();
                // Rounding may fall on either side of one half.
                prop_assert!((found.score - expected).abs() <= 1.0, "{mode}: {} {expected}", found.score);
            }
            for pair in scored.windows(2) {
                let key = |s: &terrace_plan::copies::Scored| (s.layer, s.expert);
                let ordered = pair[0].score > pair[1].score
                    || (pair[0].score == pair[1].score && key(&pair[0]) < key(&pair[1]));
                prop_assert!(ordered, "{mode}: {pair:?}");
            }
        }
    }

    /// Slots stay within the budget and the layers, use what would hold another expert, and grow
    /// with the budget.
    #[test]
    fn slots_fit_and_grow(all in layers(), c in 0.0..=1.0f64, bundle in 1u64..1_000, part in 0.0..1.2f64) {
        let shapes: Vec<HotLayer> = all
            .iter()
            .map(|layer| HotLayer { experts: layer.experts.len() as u32, bundle: ByteSize(bundle) })
            .collect();
        let experts: u32 = shapes.iter().map(|layer| layer.experts).sum();
        let budget = (f64::from(experts) * part) as u64 * bundle;
        for mode in Weighting::ALL {
            let slots = slots_by_worth(mode, c, &shapes, &all, ByteSize(budget));
            prop_assert!(slots.iter().zip(&shapes).all(|(slots, layer)| *slots <= layer.experts));
            let taken: u32 = slots.iter().sum();
            prop_assert_eq!(u64::from(taken), (budget / bundle).min(u64::from(experts)), "{}", mode);
            if mode == Weighting::Uses && taken > 0 {
                // No selection of as many experts has more uses.
                let mut hits: Vec<u64> = all.iter().flat_map(|l| l.experts.iter().map(|u| u.hits)).collect();
                hits.sort_unstable_by(|a, b| b.cmp(a));
                let best: u64 = hits.iter().take(taken as usize).sum();
                let covered: u64 = all.iter().zip(&slots).map(|(layer, &slots)| {
                    let mut hits: Vec<u64> = layer.experts.iter().map(|uses| uses.hits).collect();
                    hits.sort_unstable_by(|a, b| b.cmp(a));
                    hits.iter().take(slots as usize).sum::<u64>()
                }).sum();
                prop_assert_eq!(covered, best);
            }
        }
    }
}

#[test]
fn names_are_read_with_their_aliases() {
    for mode in Weighting::ALL {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    for name in ["smooth", "smooth-pressure", "capped", "capped-pressure", "soft-pressure"] {
        assert_eq!(name.parse(), Ok(Weighting::SmoothPressure), "{name}");
    }
    assert_eq!(("moe-time".parse(), "decode-time".parse()), (Ok(Weighting::Time), Ok(Weighting::Time)));
    assert_eq!(("rank".parse(), "layer-rank".parse()), (Ok(Weighting::Balanced), Ok(Weighting::Balanced)));
    assert!("best".parse::<Weighting>().is_err());
}

/// The layers' lists decide in flat, their own lengths in balanced.
#[test]
fn flat_interleaves_layers() {
    let layer = |layer, hits: &[u64]| LayerUse {
        layer,
        experts: (0..).zip(hits).map(|(expert, &hits)| Uses { expert, hits, hot: 0 }).collect(),
        ..LayerUse::default()
    };
    let all = [layer(0, &[5, 900, 0]), layer(1, &[10, 20, 30])];
    let order = |mode| scores(mode, 0.5, &all).iter().map(|s| (s.layer, s.expert)).collect::<Vec<_>>();
    assert_eq!(order(Weighting::Flat), [(0, 1), (1, 2), (1, 1), (0, 0), (1, 0)]);
    assert_eq!(order(Weighting::Balanced), [(1, 2), (0, 1), (1, 1), (1, 0), (0, 0)]);
    assert_eq!(order(Weighting::Uses), [(0, 1), (1, 2), (1, 1), (1, 0), (0, 0)]);
}
