//! The RAM budget includes replaced tensors: slots are given up for them, or nothing is reloaded.

use crate::reloading::{dir, from_file, load, options, original, peak, trace, with, write};
use std::path::PathBuf;
use terrace_engine::options::MemoryOptions;
use terrace_engine::{Engine, Options, ReloadError};
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};
use terrace_testkit::rpc::resident;
use terrace_testkit::{Arch, Spec, WeightType};

const TENSOR: &str = "blk.2.attn_q.weight";

struct Fixture {
    _dir: tempfile::TempDir,
    model: PathBuf,
    donor: PathBuf,
    /// The tensor's size in the donor.
    len: ByteSize,
}

fn scene() -> Fixture {
    let dir = dir();
    let spec = Spec::new(Arch::Qwen3Moe);
    let model = write(&spec, dir.path().join("model.gguf"));
    let donor = write(&with(&spec, TENSOR, WeightType::F16), dir.path().join("donor.gguf"));
    let file = terrace_ggml::gguf::read(&donor).unwrap();
    let len = file.tensors.iter().find(|tensor| tensor.name == TENSOR).unwrap().extent.len;
    Fixture { _dir: dir, model, donor, len: ByteSize(len) }
}

impl Fixture {
    fn engine(&self, manage: Manage, budget: ByteSize) -> Engine {
        load(Options {
            memory: MemoryOptions {
                ram_budget: Budget::Bytes(budget),
                ..options(&self.model, manage).memory
            },
            ..options(&self.model, manage)
        })
    }

    /// Size of the resident weights, the minimum budget, and the largest useful budget of a run of
    /// this kind.
    fn sizes(&self, manage: Manage) -> (ByteSize, ByteSize, ByteSize) {
        let engine = load(options(&self.model, manage));
        let plan = engine.plan().placement.as_ref().unwrap();
        (plan.resident, plan.minimum, plan.budget)
    }
}

fn capacity(engine: &Engine) -> ByteSize {
    engine.store_stats().unwrap().capacity
}

#[test]
fn slots_give_way_and_come_back() {
    let scene = scene();
    let (.., budget) = scene.sizes(Manage::Experts);
    let mut engine = scene.engine(Manage::Experts, budget);
    let plan = engine.plan().placement.clone().unwrap();
    let spare = plan.budget.saturating_sub(plan.resident + plan.slots);
    let (golden, before) = (trace(&mut engine), capacity(&engine));
    for _ in 0..3 {
        let report = engine.swap(&[from_file(TENSOR, &scene.donor)]).unwrap();
        assert_eq!(report.swapped.len(), 1);
        let taken = scene.len.saturating_sub(spare);
        assert!(taken > ByteSize::ZERO, "{spare} of the budget is unused: nothing is tested");
        assert!(capacity(&engine) + taken <= before, "{} of {before}, {taken} taken", capacity(&engine));
        assert_eq!(engine.budget_now().map(|now| now <= budget), Some(true));
        assert!(trace(&mut engine) != golden);
        assert!(capacity(&engine) + taken <= before, "a graph does not restore slots");
        engine.swap(&[original(TENSOR)]).unwrap();
        assert_eq!((capacity(&engine), engine.budget_now()), (before, Some(budget)));
        assert!(trace(&mut engine) == golden);
    }
}

/// A tensor of a touched file is compared, and may be far larger than what the budget leaves.
#[test]
fn streamed_tensors_are_compared_in_parts() {
    let dir = dir();
    let spec = Spec { layers: 1, experts: 32, expert_ff: 8192, ..Spec::new(Arch::Qwen3Moe) };
    let model = write(&spec, dir.path().join("model.gguf"));
    let file = terrace_ggml::gguf::read(&model).unwrap();
    let largest = file.tensors.iter().map(|tensor| tensor.extent.len).max().unwrap();
    assert!(largest > 24 << 20, "{largest}");
    let mut engine = load(options(&model, Manage::Experts));
    let copy = dir.path().join("copy.gguf");
    std::fs::copy(&model, &copy).unwrap();
    std::fs::rename(&copy, &model).unwrap();
    peak();
    let before = resident("self").unwrap();
    let report = engine.reload_changed().unwrap();
    assert!(report.is_empty() && report.unchanged.len() > 10, "{report}");
    let peak = peak();
    assert!(peak < before + ByteSize::mib(16), "{peak} with {before} before");
}

#[test]
fn what_the_budget_cannot_hold_is_refused() {
    let scene = scene();
    let (_, least, _) = scene.sizes(Manage::Experts);
    let (resident, ..) = scene.sizes(Manage::None);
    for (manage, budget) in [(Manage::Experts, least), (Manage::None, resident)] {
        let mut engine = scene.engine(manage, budget);
        let golden = trace(&mut engine);
        let stats = engine.store_stats().map(|stats| stats.capacity);
        let error = engine.swap(&[from_file(TENSOR, &scene.donor)]).unwrap_err();
        let ReloadError::OverBudget { needed, left, budget: named } = error else {
            panic!("{manage}: {error}")
        };
        assert!(needed >= scene.len && left < needed && named == budget, "{manage}: {error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("RAM budget")));
        assert_eq!((engine.epoch(), engine.store_stats().map(|stats| stats.capacity)), (0, stats));
        assert!(trace(&mut engine) == golden, "{manage}: the model has changed");
        // Slots are whole pages.
        let enough = budget + needed.saturating_sub(left) + ByteSize(2 * 4096);
        let mut engine = scene.engine(manage, enough);
        engine.swap(&[from_file(TENSOR, &scene.donor)]).unwrap();
    }
}
