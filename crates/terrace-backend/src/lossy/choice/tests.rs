//! Choices against plain definitions.

use super::*;
use crate::lossy::SparedLayer;
use proptest::prelude::*;
use std::collections::BTreeSet;
use terrace_model::LayerId;

/// The experts by score.
fn by_score(scores: &[f32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..scores.len() as u32).collect();
    order.sort_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b)));
    order
}

/// The chosen experts by definition: the best `keep`, then the highest scores with the bonus.
fn defined(scores: &[f32], top_k: usize, routing: &LossyRouting, here: &[bool]) -> BTreeSet<u32> {
    let range =
        scores.iter().copied().fold(f32::MIN, f32::max) - scores.iter().copied().fold(f32::MAX, f32::min);
    let order = by_score(scores);
    let (kept, others) = order.split_at((routing.keep as usize).min(top_k));
    let raised = |expert: u32| {
        let bonus = if here[expert as usize] { routing.prior * range } else { 0.0 };
        scores[expert as usize] + bonus
    };
    let mut others = others.to_vec();
    // Of equal ones, those in memory come first.
    others.sort_by(|&a, &b| raised(b).total_cmp(&raised(a)).then(here[b as usize].cmp(&here[a as usize])));
    kept.iter().chain(&others[..top_k - kept.len()]).copied().collect()
}

fn tokens() -> impl Strategy<Value = (Vec<f32>, Vec<bool>, usize, u32, f32)> {
    (2_usize..40).prop_flat_map(|n| {
        let distinct = prop::collection::btree_set(-400_i32..400, n)
            .prop_map(|set| set.into_iter().map(|score| score as f32 / 16.0).collect::<Vec<f32>>());
        (distinct.prop_shuffle(), prop::collection::vec(any::<bool>(), n), 1..=n, 0_u32..4, 0.0_f32..1.2)
    })
}

proptest! {
    #[test]
    fn the_chosen_have_the_highest_raised_scores((scores, here, top_k, keep, prior) in tokens()) {
        let routing = LossyRouting { prior, keep, ..LossyRouting::default() };
        let mut choice = Choice::default();
        let substituted = choice.choose(scores.iter().copied(), false, top_k, &routing, |e| here[e as usize]);
        let exact = by_score(&scores);
        let chosen: BTreeSet<u32> = choice.order()[..top_k].iter().copied().collect();
        prop_assert_eq!(&chosen, &defined(&scores, top_k, &routing, &here));
        let others = chosen.iter().filter(|expert| !exact[..top_k].contains(expert)).count();
        prop_assert_eq!(substituted, others);
        // Both parts are in the order of scores, and nothing is lost.
        let in_order = |part: &[u32]| part.is_sorted_by(|&a, &b| scores[a as usize] >= scores[b as usize]);
        prop_assert!(in_order(&choice.order()[..top_k]) && in_order(&choice.order()[top_k..]));
        prop_assert_eq!(choice.order().iter().copied().collect::<BTreeSet<_>>().len(), scores.len());
        if substituted == 0 {
            prop_assert_eq!(choice.order(), &exact[..]);
        }
    }

    /// The logarithm of a softmax is the logit less a constant.
    #[test]
    fn probabilities_are_compared_by_their_logits((scores, here, top_k, keep, prior) in tokens()) {
        let routing = LossyRouting { prior, keep, ..LossyRouting::default() };
        let sum: f32 = scores.iter().map(|score| (score / 4.0).exp()).sum();
        let (mut by_logit, mut by_probability) = (Choice::default(), Choice::default());
        by_logit.choose(scores.iter().map(|score| score / 4.0), false, top_k, &routing, |e| here[e as usize]);
        let of = scores.iter().map(|score| (score / 4.0).exp() / sum);
        by_probability.choose(of, true, top_k, &routing, |e| here[e as usize]);
        let set = |choice: &Choice| choice.order()[..top_k].iter().copied().collect::<BTreeSet<u32>>();
        let differ = set(&by_logit).symmetric_difference(&set(&by_probability)).count();
        // Equal raised scores may be rounded either way.
        prop_assert!(differ <= 2, "{differ}");
    }

    #[test]
    fn only_light_experts_that_are_not_there_are_left_out(
        weights in prop::collection::vec(0.01_f32..1.0, 1..10),
        bits in any::<u16>(),
        drop in 0.0_f32..1.5,
        logits in any::<bool>(),
    ) {
        let here = |expert: u32| bits >> expert & 1 == 1;
        let before: Vec<i32> = (0..weights.len() as i32).collect();
        let (mut ids, mut after) = (before.clone(), weights.clone());
        let routing = LossyRouting { drop, ..LossyRouting::default() };
        let left_out = Choice::default().drop(&mut ids, &mut after, logits, &routing, here);
        let exp = |weight: f32| if logits { weight.exp() } else { weight };
        let sum: f32 = weights.iter().map(|&weight| exp(weight)).sum();
        let best = (0..weights.len()).rev().max_by(|&a, &b| weights[a].total_cmp(&weights[b])).unwrap();
        let mut expected = 0;
        for (place, &id) in before.iter().enumerate() {
            let share = exp(weights[place]) / sum;
            let least = drop / weights.len() as f32;
            prop_assume!((share - least).abs() > 1e-5);
            let out = place != best && share < least && !here(id as u32);
            expected += usize::from(out);
            prop_assert_eq!(ids[place], if out { before[best] } else { id });
            prop_assert_eq!(exp(after[place]) == 0.0, out);
        }
        prop_assert_eq!(left_out, expected);
        // What is left has its proportions, and the sum stays.
        if !logits {
            let now: f32 = after.iter().sum();
            prop_assert!((now / sum - 1.0).abs() < 1e-4, "{now} and {sum}");
            let factor = after[best] / weights[best];
            for (after, before) in after.iter().zip(&weights).filter(|(after, _)| **after > 0.0) {
                prop_assert!((after / before / factor - 1.0).abs() < 1e-4);
            }
        }
    }
}

#[test]
fn masked_experts_are_not_chosen_for_being_in_memory() {
    let scores = [1.0, f32::NEG_INFINITY, 0.5, f32::NEG_INFINITY, 0.9];
    let routing = LossyRouting { prior: 1.0, ..LossyRouting::default() };
    let mut choice = Choice::default();
    let substituted =
        choice.choose(scores.into_iter(), false, 2, &routing, |expert| expert % 2 == 1 || expert == 2);
    assert_eq!((substituted, &choice.order()[..2]), (1, &[0, 2][..]));
    // And no bonus is no number.
    assert_eq!(choice.choose([f32::NEG_INFINITY; 3].into_iter(), false, 2, &routing, |_| true), 0);
    assert_eq!(choice.choose([2.0; 3].into_iter(), false, 2, &routing, |expert| expert == 2), 0);
}

#[test]
fn light_experts_are_those_of_small_weight_but_the_kept() {
    let light = |ids: &[i32], weights: &[f32], low: f32, low_keep: u32| {
        let routing = LossyRouting { low, low_keep, ..LossyRouting::default() };
        let mut light = vec![99];
        Choice::default().light(ids, weights, false, &routing, &mut light);
        light
    };
    let (ids, weights) = ([7, 3, 5, 1], [0.3, 0.4, 0.2, 0.1]);
    assert_eq!(light(&ids, &weights, 1.0, 1), [5, 1], "below a quarter");
    assert_eq!(light(&ids, &weights, f32::INFINITY, 1), [7, 5, 1], "all but the best");
    assert_eq!(light(&ids, &weights, f32::INFINITY, 0), [7, 3, 5, 1]);
    assert_eq!(light(&ids, &weights, 0.3, 1), [] as [u32; 0]);
    // In the place of one that was left out is the best one's id.
    assert_eq!(light(&[7, 3, 5, 3], &[0.3, 0.4, 0.3, 0.0], 1.0, 1), [] as [u32; 0]);
    assert_eq!(light(&[7, 3, 5, 3], &[0.3, 0.4, 0.3, 0.0], f32::INFINITY, 0), [7, 3, 5]);
    assert_eq!(light(&ids, &[f32::NAN; 4], f32::INFINITY, 1), [] as [u32; 0], "no number is no small one");
}

#[test]
fn less_is_permitted_in_a_spared_layer() {
    let spared = Some(SparedLayer { layer: LayerId(3), limit: 0.5 });
    let routing = LossyRouting { prior: 0.4, keep: 2, drop: 0.6, low: 0.8, low_keep: 1, spared };
    assert_eq!(routing.of_layer(Some(LayerId(3))), LossyRouting { prior: 0.1, drop: 0.3, ..routing });
    for other in [None, Some(LayerId(2))] {
        assert_eq!(routing.of_layer(other), routing);
    }
    assert_eq!(LossyRouting { spared: None, ..routing }.of_layer(Some(LayerId(3))).drop, 0.6);
}
