//! Options that have no effect in a run say so once, with the reason; those that have one say nothing.

use crate::common::{bundled, run, stderr};
use terrace_model::ByteSize;
use terrace_testkit::rpc::RpcServer;

/// Every option that needs something, with a value that asks for it.
const OPTIONS: &[(&str, &str)] = &[
    ("--override-tensor", "blk.1.attn_q.*=ram"),
    ("--vram-budget", "1GiB"),
    ("--vram-reserve", "1MiB"),
    ("--cpu-moe", ""),
    ("--n-cpu-moe", "2"),
    ("--rpc-timeout", "20"),
    ("--hot-update", "1MiB"),
    ("--hot-weighting", "uses"),
    ("--hot-layer-curve", "0.75"),
    ("--hot-lanes", "always"),
    ("--hits", "uniform"),
    ("--adapt", "on"),
    ("--queue-depth", "3"),
    ("--request-size", "64KiB"),
    ("--slots-share", "90"),
    ("--cache-policy", "lru"),
    ("--lookahead", "1MiB"),
    ("--expect-prompt", "9"),
    ("--threads-batch", "1"),
    ("--ubatch", "32"),
    ("--ctx", "256"),
    ("--kv-type", "q8_0"),
];

/// Runs with all of [`OPTIONS`], and returns those that say that they have no effect, with their reasons.
fn idle(situation: &[&str]) -> Vec<(String, String)> {
    let bundled = bundled();
    let mut args = vec!["run", bundled.to_str().unwrap(), "-p", "In the", "-n", "1"];
    args.extend(situation);
    // A tensor that a rule puts into RAM is not mapped, and then none is.
    let suits = |name: &str| name != "--override-tensor" || situation != ["--mmap"];
    let options = OPTIONS.iter().filter(|(name, _)| suits(name));
    args.extend(options.flat_map(|(name, value)| [*name, *value]).filter(|word| !word.is_empty()));
    let output = run(args);
    assert!(output.status.success(), "{situation:?}: {}", stderr(&output));
    let text = stderr(&output);
    let lines = text.lines().filter_map(|line| line.split_once("--")?.1.split_once(" has no effect: "));
    lines.map(|(name, reason)| (format!("--{name}"), reason.to_owned())).collect()
}

/// Asserts that exactly these options say so, in the order of the command's options, each for its reason.
#[track_caller]
fn check(situation: &[&str], expected: &[(&[&str], &str)]) {
    let mut found = idle(situation);
    let mut all: Vec<(String, String)> = expected
        .iter()
        .flat_map(|(names, reason)| names.iter().map(|name| ((*name).to_owned(), (*reason).to_owned())))
        .collect();
    found.sort();
    all.sort();
    assert_eq!(found, all, "{situation:?}");
}

const LAYERS: &[&str] = &["--vram-budget", "--vram-reserve", "--cpu-moe", "--n-cpu-moe"];
const COPIES: &[&str] = &["--hot-update", "--hot-weighting", "--hot-layer-curve", "--hot-lanes"];
const SLOTS: &[&str] = &["--hits", "--adapt", "--slots-share", "--cache-policy", "--lookahead"];
const READING: &[&str] = &["--queue-depth", "--request-size"];
const RPC: (&[&str], &str) = (&["--rpc-timeout"], "no RPC server is used (--rpc)");
const NONE: (&[&str], &str) = (LAYERS, "there is no accelerator");

#[test]
fn without_a_device_its_options_have_no_effect() {
    let no_copies = (COPIES, "no device has memory of its own");
    check(&["--stream", "experts", "--ram-budget", "8MiB"], &[RPC, NONE, no_copies]);
}

#[test]
fn mapped_weights_are_read_by_the_kernel() {
    let mapped = "all weights are mapped, and the kernel reads them";
    let no_copies = (COPIES, "no device has memory of its own");
    check(&["--mmap"], &[RPC, NONE, no_copies, (SLOTS, mapped), (READING, mapped)]);
}

#[test]
fn resident_weights_need_no_slots() {
    let no_copies = (COPIES, "no device has memory of its own");
    check(&["--mmap=off"], &[RPC, NONE, no_copies, (SLOTS, "nothing streams, so there are no slots")]);
}

#[test]
fn stock_places_nothing() {
    let stock = "llama.cpp itself holds the weights";
    let others = (&["--override-tensor", "--expect-prompt"][..], stock);
    check(&["--stock"], &[RPC, (LAYERS, stock), (COPIES, stock), (SLOTS, stock), (READING, stock), others]);
}

#[test]
fn with_a_device_that_has_copies_everything_has_an_effect() {
    let server = RpcServer::start(ByteSize::mib(64)).unwrap();
    let streamed = ["--stream", "experts", "--ram-budget", "8MiB", "--rpc", server.endpoint()];
    check(&[&streamed[..], &["-ngl", "0", "--hot-cache", "2MiB"]].concat(), &[]);
    let left_out = (LAYERS, "--device leaves out all accelerators");
    let no_copies = (COPIES, "no device with memory of its own may be used");
    check(&[&streamed[..], &["--device", "none"]].concat(), &[left_out, no_copies]);
}
