//! Routing traces, from a real run to its replay.

use crate::common::{bundled, failure, json, run, stderr, stdout, terrace};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Enough text for a prompt that touches nearly all experts.
const PROMPT: &str = "And it came to pass in those days, that there went out a decree that all the world should be \
    taxed. And all went to be taxed, every one into his own city. And she brought forth her firstborn son, and \
    wrapped him in swaddling clothes, and laid him in a manger; because there was no room for them in the inn.";

/// Records a run of the bundled model, and returns its report.
fn record(trace: &Path, more: &[&str]) -> Value {
    let model = bundled();
    let fixed =
        ["trace", "record", model.to_str().unwrap(), "-p", PROMPT, "-n", "24", "--temp", "0", "--json"];
    let output = run(fixed.iter().chain(&["-o", trace.to_str().unwrap(), "--stream", "experts"]).chain(more));
    let report = json(&output);
    assert!(stderr(&output).contains("routing trace: "), "{}", stderr(&output));
    report
}

fn replay(trace: &Path, more: &[&str]) -> Value {
    json(&run(["trace", "replay", trace.to_str().unwrap(), "--json"].iter().chain(more)))
}

fn in_dir(name: &str) -> (TempDir, PathBuf) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(name);
    (dir, path)
}

fn result<'v>(report: &'v Value, policy: &str) -> &'v Value {
    report["results"].as_array().unwrap().iter().find(|result| result["policy"] == policy).unwrap()
}

/// Budgets from one with room for a few experts, where the prompt's experts come in waves and
/// decoding never hits, to one that holds most experts; every policy; both engines. No count may
/// differ from what the run's own store counted.
#[test]
fn replays_count_what_runs_counted() {
    let (dir, trace) = in_dir("a.trace");
    let (hot, learned) = (dir.path().join("hot.txt"), dir.path().join("learned.json"));
    record(&trace, &["--ram-budget", "8MiB", "--learn-to", learned.to_str().unwrap()]);
    let listed = run(["experts", "show", learned.to_str().unwrap(), "--list=40"]);
    assert!(listed.status.success(), "{}", stderr(&listed));
    assert_eq!(stdout(&listed).lines().count(), 40);
    fs::write(&hot, stdout(&listed)).unwrap();
    let all = run(["experts", "show", learned.to_str().unwrap(), "--list"]);
    let all = stdout(&all);
    assert!(all.starts_with(stdout(&listed)) && all.lines().count() > 40, "{all}");
    let old = run(["trace", "hot", trace.to_str().unwrap()]);
    assert!(
        failure(&old, 2).contains("terrace trace hot: this command has been removed"),
        "{}",
        stderr(&old)
    );
    assert!(stderr(&old).contains("`terrace experts show FILE --list`"), "{}", stderr(&old));

    let statics = format!("static:{}", hot.display());
    let mut rates = Vec::new();
    for (budget, io) in [("2MiB", "uring"), ("4MiB", "pread"), ("8MiB", "uring"), ("16MiB", "auto")] {
        for policy in ["auto", "lru", "lfru", "lfu", "per-layer", &statics] {
            let report =
                record(&trace, &["--ram-budget", budget, "--io", io, "--cache-policy", policy])["store"]
                    .clone();
            let replayed = replay(&trace, &["--policy", policy]);
            let total = &result(&replayed, policy)["total"];
            let what = format!("{policy}, {budget}: {report} {replayed:#}");
            assert_eq!(replayed["recorded"]["policy"], *policy);
            assert_eq!((&total["misses"], &total["hits"]), (&report["misses"], &report["hits"]), "{what}");
            assert_eq!(total["bytes_read"], report["bytes_read"], "{what}");
            assert_eq!(replayed["reproduced"], true, "{what}");
            let best = &result(&replayed, "belady")["total"];
            assert!(best["misses"].as_u64() <= total["misses"].as_u64(), "{what}");
            rates.push(total["hits"].as_u64().unwrap());
        }
    }
    assert!(rates.iter().max() > rates.iter().min(), "the budgets made no difference: {rates:?}");
}

#[test]
fn a_trace_foretells_runs_under_other_policies_and_budgets() {
    let (_dir, trace) = in_dir("a.trace");
    record(&trace, &["--ram-budget", "4MiB"]);
    let other = trace.with_extension("other");
    let report = record(&other, &["--ram-budget", "10MiB", "--cache-policy", "lfu"]);
    let slots = replay(&other, &[])["recorded"]["slots"].to_string();
    let foretold = replay(&trace, &["--policy", "lfu", "--budget", &format!("{slots}B")]);
    let total = &result(&foretold, "lfu")["total"];
    assert_eq!(total["misses"], report["store"]["misses"], "{foretold:#}");
    assert_eq!(total["bytes_read"], report["store"]["bytes_read"]);

    // The slower of reading and computing decides.
    let slow = replay(&trace, &["--compute-ms", "500", "--gbps", "5"]);
    let tps = result(&slow, "lru")["predicted_tps"].as_f64().unwrap();
    assert!((tps - 2.0).abs() < 1e-9, "{tps}");
}

#[test]
fn the_table_says_what_was_recorded_and_warns_below_a_token_cycle() {
    let (_dir, trace) = in_dir("a.trace");
    record(&trace, &["--ram-budget", "8MiB"]);
    let output = run(["trace", "replay", trace.to_str().unwrap(), "--budget", "5%", "--budget", "60%"]);
    assert!(output.status.success(), "{}", stderr(&output));
    for part in ["4 of 32 per token in 6 layers", "the same counts", "belady", "per-layer", "5.0%", "60.0%"] {
        assert!(stdout(&output).contains(part), "{part}: {}", stdout(&output));
    }
    let warnings: Vec<String> = stderr(&output).lines().map(str::to_owned).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].starts_with("warning: slots of 1.01 MiB are smaller than the 2.53 MiB"),
        "{warnings:?}"
    );
}

#[test]
fn what_is_no_trace_is_refused_by_name_and_offset() {
    let (dir, trace) = in_dir("a.trace");
    record(&trace, &["--ram-budget", "8MiB"]);
    let good = fs::read(&trace).unwrap();
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 0x10;
    let cases: [(&str, &[u8], &str); 4] = [
        ("empty", b"", "not a routing trace"),
        ("model", b"GGUF\x03\0\0\0", "not a routing trace"),
        ("cut", &good[..good.len() - 9], "offset"),
        ("flipped", &flipped, "offset"),
    ];
    for (name, bytes, part) in cases {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        let error = failure(&run(["trace", "replay", path.to_str().unwrap()]), 1);
        assert!(error.contains(path.to_str().unwrap()) && error.contains(part), "{name}: {error}");
    }
    let missing = dir.path().join("missing");
    let error = failure(&run(["trace", "replay", missing.to_str().unwrap()]), 1);
    assert!(error.contains("missing"), "{error}");
}

#[test]
fn runs_that_cannot_be_recorded_say_so_and_leave_files_alone() {
    let (dir, trace) = in_dir("a.trace");
    let model = bundled();
    let model = model.to_str().unwrap();
    let record = |output: &Path, more: &[&str]| {
        let fixed = ["trace", "record", model, "-p", "In", "-n", "1", "-o", output.to_str().unwrap()];
        run(fixed.iter().chain(more))
    };
    // Refused before the model is loaded.
    let error = failure(&record(&dir.path().join("no/such"), &[]), 1);
    assert!(error.contains("no/such"), "{error}");
    // An existing file is kept.
    fs::write(&trace, "TERRATRC mine").unwrap();
    for more in [&["--stream", "none"][..], &["--stock"]] {
        let output = record(&trace, more);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains("nothing was recorded"), "{}", stderr(&output));
    }
    let failed = record(&trace, &["--stream", "experts", "--ram-budget", "8MiB", "--inject-fault", "eio@60"]);
    assert_eq!(failed.status.code(), Some(1), "{}", stderr(&failed));
    assert_eq!(fs::read_to_string(&trace).unwrap(), "TERRATRC mine");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left of recordings that failed");
}

#[test]
fn the_policy_comes_from_all_layers_of_settings_and_must_exist() {
    let (dir, trace) = in_dir("a.trace");
    let config = dir.path().join("config.toml");
    fs::write(&config, "cache-policy = \"lfu\"\nram-budget = \"8MiB\"\n").unwrap();
    let model = bundled();
    let args = ["trace", "record", model.to_str().unwrap(), "-p", "In", "-n", "2", "--stream", "experts"];
    let recorded = |variable: Option<&str>| {
        let mut command = terrace();
        command.args(args).arg("-o").arg(&trace).arg("--config").arg(&config);
        if let Some(value) = variable {
            command.env("TERRACE_CACHE_POLICY", value);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(!stderr(&output).contains("warning"), "{}", stderr(&output));
        replay(&trace, &[])["recorded"]["policy"].clone()
    };
    assert_eq!(recorded(None), "lfu");
    assert_eq!(recorded(Some("lfru")), "lfru");

    let error = failure(&run(args.iter().chain(&["-o", "/dev/null", "--cache-policy", "best"])), 2);
    assert!(error.contains("best") && error.contains("per-layer"), "{error}");
    let list = dir.path().join("list");
    fs::write(&list, "0 1\n0 x\n").unwrap();
    let policy = format!("static:{}", list.display());
    let out = trace.to_str().unwrap();
    let error = failure(&run(args.iter().chain(&["-o", out, "--cache-policy", &policy])), 1);
    assert!(error.contains("line 2") && error.contains("list"), "{error}");
}
