//! What is read ahead: on a guess of the next layer's experts, and because earlier runs used it.

use crate::host::{bundled, load, plug_in, set, trace};
use serde_json::Value;
use std::path::Path;

/// Loads the model, computes with it, and frees it. Returns its logits, and what the plug-in reports of
/// it.
fn run(stats: &Path) -> (Vec<Vec<u32>>, Value) {
    let model = load(&bundled(), false);
    let logits = trace(&model);
    drop(model);
    let report: Value = serde_json::from_slice(&std::fs::read(stats).unwrap()).unwrap();
    (logits, report["freed"].as_array().unwrap().last().unwrap().clone())
}

#[test]
fn experts_are_read_ahead_on_a_guess_and_because_earlier_runs_used_them() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let stats = dir.path().join("stats.json");
    set("TERRACE_RAM_BUDGET", "10MiB");
    set("TERRACE_STATS", stats.to_str().unwrap());
    set("XDG_CACHE_HOME", dir.path().to_str().unwrap());
    set("TERRACE_WARM_START", "on");
    let expected = trace(&load(&bundled(), false));
    plug_in();

    let (logits, first) = run(&stats);
    assert!(logits == expected, "other logits");
    let of = |report: &Value, key: &str| report["foretold"][key].as_u64().unwrap();
    assert!(
        of(&first, "guessed") > 0 && of(&first, "chosen") > of(&first, "guessed"),
        "{}",
        first["foretold"]
    );
    let ahead = &first["store"]["ahead"];
    assert!(ahead["speculated"].as_u64() > Some(0) && ahead["used"].as_u64() > Some(0), "{ahead}");
    assert_eq!(ahead["filled_bytes"], 0, "nothing is known of earlier runs");
    let kept = std::fs::read_dir(dir.path().join("terrace/records")).unwrap().count();
    assert_eq!(kept, 1, "one file for the model");

    let (logits, second) = run(&stats);
    assert!(logits == expected, "other logits");
    let ahead = &second["store"]["ahead"];
    assert!(ahead["filled_bytes"].as_u64() > Some(0), "{ahead}");
}

#[test]
fn nothing_is_kept_or_guessed_if_that_is_switched_off() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let stats = dir.path().join("stats.json");
    set("TERRACE_RAM_BUDGET", "10MiB");
    set("TERRACE_STATS", stats.to_str().unwrap());
    set("XDG_CACHE_HOME", dir.path().to_str().unwrap());
    set("TERRACE_WARM_START", "off");
    set("TERRACE_LOOKAHEAD", "off");
    plug_in();
    let (_, report) = run(&stats);
    assert_eq!(report["foretold"]["chosen"], 0);
    assert_eq!(report["store"]["ahead"]["speculated"], 0);
    assert!(!dir.path().join("terrace").exists());
}
