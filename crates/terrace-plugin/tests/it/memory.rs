//! Memory that a program takes with the plug-in: its budget, and what the program takes of its own.

use crate::host::{load, places, plug_in, set, trace};
use std::path::Path;
use terrace_testkit::{Arch, Spec, WeightType, needs_own_process, write};

/// What the process has in memory, anonymous and of files, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// The most since the last [`forget_most`].
fn most_resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn forget_most() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// A model of which nearly all bytes are experts.
fn spec(experts: u32) -> Spec {
    let types = (WeightType::F16, Some(WeightType::F16), WeightType::F16);
    Spec {
        layers: 4,
        experts,
        top_k: 4,
        expert_ff: 2048,
        expert_type: types.0,
        expert_down_type: types.1,
        other_type: types.2,
        ..Spec::new(Arch::Qwen3Moe)
    }
}

/// Loads a model and computes with it. Returns the most memory that the process had while it computed,
/// beside what it had before.
fn grown(path: &Path, streamed: bool) -> u64 {
    let before = resident();
    let model = load(path, false);
    assert_eq!(places(&model).contains("TERRACE"), streamed, "{:?}", places(&model));
    forget_most();
    trace(&model);
    most_resident().saturating_sub(before)
}

#[test]
fn a_program_stays_within_the_budget_and_its_own_memory() {
    needs_own_process();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let large = write(&spec(24), dir.path().join("large.gguf")).unwrap();
    let small = write(&spec(4), dir.path().join("small.gguf")).unwrap();
    let size = |path: &Path| std::fs::metadata(path).unwrap().len();
    let budget = size(&large) / 6;
    set("TERRACE_RAM_BUDGET", &budget.to_string());
    // Code and tables of ggml are there from here on.
    grown(&small, false);
    // Contexts and graphs of both are of the same size: the host's own memory is what is not weights.
    let own = grown(&small, false).saturating_sub(size(&small));
    let alone = grown(&large, false);
    assert!(alone > size(&large) / 2, "only {alone} bytes of {} are used", size(&large));
    plug_in();
    let with = grown(&large, true);
    // Scratch for activations, and tables: within a part of what the budget saves.
    let slack = 4 << 20;
    assert!(
        with <= budget + own + slack,
        "{with} bytes with a budget of {budget}, beside the program's own {own}; alone {alone}"
    );
}
