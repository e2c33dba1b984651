//! A run follows the plan that `terrace plan` prints for the same options, byte for byte.

use crate::common::{bundled, failure, json, run};
use crate::workers::Worker;
use serde_json::Value;
use tempfile::TempDir;
use terrace_testkit::{Arch, Edit, Spec, write_edited};

/// The plan that is printed, without what is said beside it.
fn planned(model: &str, options: &[&str]) -> Value {
    let mut plan = json(&run(["plan", model, "--json", "--available-memory", "4GiB"].iter().chain(options)));
    for beside in ["advice", "packing", "rates"] {
        assert!(plan.as_object_mut().unwrap().remove(beside).is_some(), "{beside}");
    }
    // A run's JSON has it elsewhere.
    plan.as_object_mut().unwrap().remove("lossy");
    plan
}

/// The plan that a run has followed.
fn followed(model: &str, options: &[&str]) -> Value {
    let begin = ["run", model, "--json", "-n", "1", "-p", "In the", "--available-memory", "4GiB"];
    let mut plan = json(&run(begin.iter().chain(options)))["plan"]["placement"].clone();
    // What only a run knows.
    assert!(plan.as_object_mut().unwrap().remove("given").is_some(), "{plan:#}");
    plan
}

/// Plans differ in some options, and each of these changes some.
#[test]
fn runs_follow_printed_plans() {
    let dir = TempDir::new().unwrap();
    let dense = terrace_testkit::write(&Spec::new(Arch::Llama), dir.path().join("dense.gguf")).unwrap();
    let models = [bundled(), dense];
    let options: [&[&str]; 17] = [
        &[],
        &["--ram-budget", "14MiB"],
        &["--ram-budget", "14MiB", "--stream", "experts"],
        &["--stream", "all", "--ram-budget", "18MiB"],
        &["--stream", "none"],
        &["--ctx", "512", "--ubatch", "64"],
        &["--kv-type", "q8_0"],
        &["--cache-type-k", "bf16", "--cache-type-v", "iq4_nl"],
        &["--kv-type", "auto", "--ram-budget", "14MiB"],
        &["--draft", "ngram"],
        &["--verify"],
        &["--io", "pread", "--ram-budget", "16MiB"],
        &["--cache-policy", "lfu", "--ram-budget", "14MiB"],
        &["--slots-share", "50", "--ram-budget", "16MiB"],
        &["-ot", "ffn_down_exps=disk", "--ram-budget", "24MiB"],
        &["--expect-prompt", "900", "--expect-output", "10", "--ram-budget", "14MiB"],
        &["--hits", "uniform", "--ram-budget", "14MiB"],
    ];
    let mut plans = Vec::new();
    for model in &models {
        let model = model.to_str().unwrap();
        for options in options {
            // A dense model has no experts to stream, and other sizes.
            let output = run(["plan", model, "--json", "--available-memory", "4GiB"].iter().chain(options));
            if !output.status.success() {
                assert_ne!(model, models[0].to_str().unwrap(), "{options:?}: {output:?}");
                continue;
            }
            let plan = planned(model, options);
            assert_eq!(followed(model, options), plan, "{model} {options:?}");
            plans.push(plan);
        }
    }
    plans.dedup();
    assert!(plans.len() >= 12, "the options make a difference: {}", plans.len());
}

/// Workers are asked by both, and a plan with layers on them is the same in both.
#[test]
fn runs_follow_printed_plans_with_workers() {
    let workers = [Worker::start(&["--memory", "64MiB"]), Worker::start(&["--memory", "64MiB"])];
    let [first, second] = workers.each_ref().map(|worker| worker.endpoint());
    let model = bundled();
    let model = model.to_str().unwrap();
    let both = ["--rpc", first, "--rpc", second];
    let options: [&[&str]; 4] =
        [&["-ngl", "99"], &["-ngl", "3"], &["--hot-cache", "2MiB", "-ngl", "0"], &["-ngl", "0"]];
    for options in options {
        let options = [&both[..], options].concat();
        assert_eq!(followed(model, &options), planned(model, &options), "{options:?}");
    }
}

/// A type of keys and values that does not divide the heads is refused before anything is loaded, and never chosen.
#[test]
fn keys_and_values_suit_the_heads() {
    let dir = TempDir::new().unwrap();
    let model = dir.path().join("g80.gguf");
    // Said, and not so: what is refused is refused by the header alone.
    write_edited(&bundled(), &model, &[("qwen3moe.attention.key_length", Edit::Number(80))]).unwrap();
    let model = model.to_str().unwrap();
    for begin in [&["plan", model][..], &["run", model, "-p", "hi", "-n", "1"]] {
        for option in ["--kv-type", "--cache-type-k"] {
            let error = failure(&run(begin.iter().chain(&[option, "q8_0"])), 1);
            assert!(error.contains("q8_0") && error.contains("head size of 80"), "{error}");
        }
    }
    // Little memory, so that a smaller type would pay.
    let auto = planned(model, &["--kv-type", "auto", "--ram-budget", "8MiB"]);
    assert_eq!(auto["context"]["kv_type"], "f16");
}
