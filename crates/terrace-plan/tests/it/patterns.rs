//! The patterns match exactly the streamed tensors, and there are only a few.

use crate::models;
use proptest::prelude::*;
use regex::Regex;
use terrace_model::ModelFile;
use terrace_plan::model::override_patterns;
use terrace_plan::{Manage, Managed, Selection, managed};

/// Returns the indices of the tensors whose names match a pattern, searched as in llama.cpp's
/// loader.
fn matched(model: &ModelFile, patterns: &[String]) -> Vec<usize> {
    let patterns: Vec<Regex> = patterns.iter().map(|p| Regex::new(p).expect("a valid expression")).collect();
    let names = model.tensors.iter().enumerate();
    names.filter(|(_, t)| patterns.iter().any(|p| p.is_match(&t.name))).map(|(index, _)| index).collect()
}

fn indices(selection: &Selection) -> Vec<usize> {
    selection.tensors.iter().map(|m| m.tensor).collect()
}

#[test]
fn whole_sets_are_one_pattern() {
    for model in models::all() {
        for manage in [Manage::Experts, Manage::Ffn, Manage::All, Manage::None] {
            let selection = managed(&model, manage);
            let patterns = override_patterns(&model, &selection);
            assert_eq!(matched(&model, &patterns), indices(&selection), "{} {manage}", model.architecture());
            let most = if manage == Manage::All { 2 } else { 1 };
            assert!(patterns.len() <= most, "{patterns:?}");
        }
    }
    let model = models::deepseek();
    assert_eq!(
        override_patterns(&model, &managed(&model, Manage::Experts)),
        [r"^blk\.[0-9]+\.(ffn_down_exps|ffn_gate_exps|ffn_up_exps)\.weight$"]
    );
}

#[test]
fn some_layers_are_listed() {
    let model = models::dense_70b();
    let mut selection = managed(&model, Manage::Ffn);
    selection.tensors.retain(|m| {
        let name = &model.tensors[m.tensor].name;
        name.ends_with("ffn_up.weight") || name.starts_with("blk.7.") || name.starts_with("blk.70.")
    });
    let patterns = override_patterns(&model, &selection);
    assert_eq!(
        patterns,
        [r"^blk\.[0-9]+\.ffn_up\.weight$", r"^blk\.(7|70)\.(ffn_down|ffn_gate)\.weight$"],
        "blk.77 must not match"
    );
    assert_eq!(matched(&model, &patterns), indices(&selection));
}

#[test]
fn names_are_taken_literally() {
    let mut b = models::Builder::new("a");
    for name in [
        "blk.0.a.b.weight",
        "blk.0.axb.weight",
        "blk.0.c+.weight",
        "blk.0.cc.weight",
        "x(y)|z",
        "x",
        "blk..q",
    ] {
        b.add(name, &[256, 1], models::Q4_K);
    }
    let model = b.build();
    for chosen in [vec![0], vec![2], vec![4], vec![6], vec![0, 2, 4, 6], vec![5]] {
        let tensors = chosen.iter().map(|&tensor| Managed { tensor, experts: None }).collect();
        let patterns = override_patterns(&model, &Selection { tensors });
        assert_eq!(matched(&model, &patterns), chosen, "{patterns:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_selection_is_matched_exactly(
        which in 0usize..5,
        layers in prop::collection::vec(any::<bool>(), 80),
        roles in prop::collection::vec(any::<bool>(), 16),
        odd in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let model = models::all().swap_remove(which);
        let odd: Vec<usize> = odd.iter().map(|i| i.index(model.tensors.len())).collect();
        let chosen = |(index, tensor): (usize, &terrace_model::TensorInfo)| {
            let layer = tensor.layer().is_some_and(|l| layers[l.index()]);
            // Depends on the role alone, so that a role is chosen or not in all layers.
            let role = tensor.name.rsplit('.').nth(1).map_or(0, |r| r.bytes().map(usize::from).sum::<usize>());
            ((layer && roles[role % 16]) != odd.contains(&index)).then_some(Managed { tensor: index, experts: None })
        };
        let selection = Selection { tensors: model.tensors.iter().enumerate().filter_map(chosen).collect() };
        let patterns = override_patterns(&model, &selection);
        prop_assert_eq!(matched(&model, &patterns), indices(&selection), "{:?}", patterns);
    }
}
