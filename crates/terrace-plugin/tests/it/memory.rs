//! Memory that a program takes with the plug-in: its budget, and what the program takes of its own.

use crate::host::{library, load, places, plug_in, set, trace};
use std::path::Path;
use terrace_testkit::{Arch, Spec, WeightType, needs_own_process, write};

/// The most memory, anonymous and of files, that the process had since the last [`forget_most`], in
/// bytes.
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

/// Loads a model and computes with it. Returns the most memory that the process had while it computed.
fn taken(path: &Path, streamed: bool) -> u64 {
    // SAFETY: no preconditions. What earlier models left is not this one's.
    unsafe { libc::malloc_trim(0) };
    let model = load(path, false);
    assert_eq!(places(&model).contains("TERRACE"), streamed, "{:?}", places(&model));
    forget_most();
    trace(&model);
    most_resident()
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
    // Contexts and graphs of both are of the same size: the program's own memory is what is not weights.
    let own = taken(&small, false) - size(&small);
    let alone = taken(&large, false);
    assert!(alone > size(&large) / 2, "only {alone} bytes of {} are used", size(&large));
    plug_in();
    let with = taken(&large, true);
    // The plug-in's code comes in addition.
    let code = size(&library());
    assert!(
        with <= budget + own + code,
        "{with} bytes with a budget of {budget}, beside the program's own {own} and {code} of code; alone {alone}"
    );
}
