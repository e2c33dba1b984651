//! Skewed routing is skewed, and local; uniform routing is neither.

use std::path::Path;
use terrace_ggml::llama::{LoadParams, Model, Token};
use terrace_ggml::testing::routing::{Choices, trace_routing};
use terrace_testkit::big::{self, Data};
use terrace_testkit::{Arch, Routing, RoutingStats, Spec};

fn trace(path: &Path) -> (Choices, Vec<Token>) {
    let model = Model::load(path, &LoadParams::default()).unwrap();
    let prompt = model.vocab().tokenize("A terrace.", true, false).unwrap();
    let (choices, generated) = trace_routing(&model, &prompt, 96, 1).unwrap();
    assert!(choices.values().all(|layer| layer.len() == prompt.len() + 96));
    (choices, generated)
}

#[test]
fn skewed_routing_is_as_in_trained_models() {
    let dir = tempfile::tempdir().unwrap();
    let stats = [Routing::Uniform, Routing::Skewed].map(|routing| {
        let spec = Spec {
            routing,
            embd: 1024,
            heads: 8,
            expert_ff: 256,
            experts: 64,
            top_k: 4,
            vocab: 16_384,
            ..Spec::default()
        };
        let path = big::write(&spec, dir.path().join("model.gguf"), Data::Pooled).unwrap();
        let (choices, generated) = trace(&path);
        assert_eq!(choices.len(), spec.layers as usize);
        assert_eq!(generated.len(), 96);
        RoutingStats::of(&choices, spec.experts).unwrap()
    });
    let [uniform, skewed] = stats;
    assert!(uniform.repeated < 0.2 && skewed.repeated > 0.25, "{stats:?}");
    assert!(uniform.top_tenth < skewed.top_tenth, "{stats:?}");
    assert!(uniform.lru_quarter + 0.15 < skewed.lru_quarter, "{stats:?}");
}

#[test]
fn every_architecture_names_its_choices() {
    let dir = tempfile::tempdir().unwrap();
    for &arch in Arch::ALL {
        let spec = Spec { layers: 2, ..Spec::new(arch) };
        let path = big::write(&spec, dir.path().join("model.gguf"), Data::Pooled).unwrap();
        let (choices, _) = trace(&path);
        let moe = if arch.is_moe() { spec.layers - arch.leading_dense() } else { 0 };
        assert_eq!(choices.len(), moe as usize, "{arch}");
        assert!(choices.values().flatten().all(|ids| ids.len() == spec.top_k as usize), "{arch}");
        assert!(choices.values().flatten().flatten().all(|id| id.0 < spec.experts), "{arch}");
    }
}
