//! `terrace calibrate --skip-layers` and `--layer-skip`, end to end.

use crate::common;
use crate::common::{bundled, failure, json, run, stderr, stdout, tiny};
use std::path::Path;
use std::process::Output;
use tempfile::TempDir;

const STREAMED: [&str; 4] = ["--stream", "experts", "--ram-budget", "8MiB"];
const CHUNKS: [&str; 4] = ["--chunks", "3", "--ctx", "128"];

fn on_text(command: &str, more: &[&str]) -> Output {
    let model = bundled();
    let text = model.with_file_name("sample.kjv.txt");
    let args = [command, model.to_str().unwrap(), "-f", text.to_str().unwrap()];
    run(args.iter().chain(&STREAMED).chain(more))
}

fn calibrate(out: &Path, threshold: &str) -> Output {
    let mut args = CHUNKS.to_vec();
    let threshold = format!("--skip-layers={threshold}");
    args.extend(["-o", out.to_str().unwrap(), &threshold]);
    on_text("calibrate", &args)
}

#[test]
fn a_calibrated_skip_costs_what_was_measured_and_reads_less() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("skip.json");
    let table = calibrate(&file, "0.5");
    assert!(table.status.success(), "{}", stderr(&table));
    let skip: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(
        skip["skip"],
        serde_json::json!([1, 2, 3, 4]),
        "all streamed layers but the first and the last"
    );
    assert_eq!(stdout(&table).lines().filter(|l| l.ends_with("  skip")).count(), 4, "{}", stdout(&table));
    let similarity = skip["similarity"].as_array().unwrap();
    assert_eq!(similarity.len(), 6);
    assert!(similarity[0].is_null());
    assert!(similarity[1..].iter().all(|s| (0.5..1.0).contains(&s.as_f64().unwrap())), "{similarity:?}");

    let file = file.to_str().unwrap();
    let args: Vec<&str> = CHUNKS.into_iter().chain(["--json"]).collect();
    let all = json(&on_text("perplexity", &args));
    // Up to the rounding of the last layer, which a calibration computes for all tokens.
    let same = |a: &serde_json::Value, b: &serde_json::Value| {
        let (a, b) = (a["perplexity"].as_f64().unwrap(), b["perplexity"].as_f64().unwrap());
        assert!((a / b - 1.0).abs() < 1e-6, "{a} and {b}");
    };
    same(&all, &skip["without"]);
    let args: Vec<&str> = args.into_iter().chain(["--layer-skip", file]).collect();
    let output = on_text("perplexity", &args);
    let some = json(&output);
    same(&some, &skip["with"]);
    assert!(some["perplexity"].as_f64() > all["perplexity"].as_f64(), "it is lossy");
    assert!(stderr(&output).contains("skipping layers 1, 2, 3, 4 of 6; perplexity"), "{}", stderr(&output));
    let read = |report: &serde_json::Value| report["store"]["bytes_read"].as_u64().unwrap();
    assert!(read(&some) < read(&all) / 2, "{} and {}", read(&some), read(&all));
    assert_eq!(some["plan"]["layer_skip"]["skip"], skip["skip"]);

    // Generation differs, with the option and with the variable.
    let model = bundled();
    let base = ["run", model.to_str().unwrap(), "-p", "In the beginning", "-n", "12", "--temp", "0"];
    let generate = |more: &[&str]| run(base.iter().chain(more));
    let skipped = generate(&["--layer-skip", file]);
    assert!(skipped.status.success() && stdout(&skipped) != stdout(&generate(&[])), "{}", stderr(&skipped));
    let by_environment = common::terrace().args(base).env("TERRACE_LAYER_SKIP", file).output().unwrap();
    assert_eq!(stdout(&by_environment), stdout(&skipped));
}

#[test]
fn what_cannot_be_skipped_is_refused() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("skip.json");
    // No layer is that similar: the list is empty, and nothing changes.
    let table = calibrate(&file, "1.0");
    assert!(
        table.status.success() && stdout(&table).contains("no streamed layer has a similarity above 1"),
        "{}",
        stdout(&table)
    );
    let path = file.to_str().unwrap();
    let model = bundled();
    let base = ["run", model.to_str().unwrap(), "-p", "x", "-n", "4", "--temp", "0"];
    assert_eq!(stdout(&run(base.iter().chain(&["--layer-skip", path]))), stdout(&run(base)));

    let other = tiny(&dir);
    let output = run(["run", other.to_str().unwrap(), "-p", "x", "-n", "1", "--layer-skip", path]);
    let error = failure(&output, 1);
    assert!(error.contains("skip.json") && error.contains("terrace-tiny-moe"), "{error}");
    assert!(stderr(&output).contains("hint: write one with"), "{}", stderr(&output));

    assert!(failure(&run(base.iter().chain(&["--stock", "--layer-skip", path])), 1).contains("stock"));
    let bench = ["bench", model.to_str().unwrap(), "--baseline", "--layer-skip", path];
    assert!(failure(&run(bench), 2).contains("--baseline"));
    let missing = dir.path().join("missing.json");
    let error = failure(&run(base.iter().chain(&["--layer-skip", missing.to_str().unwrap()])), 1);
    assert!(error.contains("missing.json"), "{error}");
    std::fs::write(&file, "{}").unwrap();
    assert!(failure(&run(base.iter().chain(&["--layer-skip", path])), 1).contains("not a layer skip file"));
    assert!(failure(&calibrate(&file, "2"), 2).contains("from -1 to 1"));
    let stock = on_text("calibrate", &["--skip-layers", "--stock"]);
    assert!(failure(&stock, 2).contains("computed by Terrace"));
    let both = on_text("calibrate", &["--skip-layers", "--try", "drop=1"]);
    assert!(failure(&both, 2).contains("cannot be used with"));
    // The old command says what to use.
    let old = on_text("calibrate-skip", &["--threshold", "0.9", "-o", path]);
    assert!(failure(&old, 2).contains("terrace calibrate-skip: this command has been removed"));
    assert!(stderr(&old).contains("hint: use `terrace calibrate MODEL -f TEXT --skip-layers -o FILE`"));
    // A file for --lossy is not replaced by one for --layer-skip.
    std::fs::write(&file, r#"{"version": 1, "model": 1, "settings": 1, "cost": 1}"#).unwrap();
    assert!(failure(&calibrate(&file, "0.5"), 1).contains("not a layer skip file"));
}

/// Without a value, the option takes what the model's last calibration has kept.
#[test]
fn the_last_calibration_is_the_models_own() {
    let (dir, cache) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (model, text) = (bundled(), bundled().with_file_name("sample.kjv.txt"));
    let start = |args: &[&str]| {
        let mut command = common::terrace();
        command.env("XDG_CACHE_HOME", cache.path()).args(args).args(STREAMED).output().unwrap()
    };
    let base = ["run", model.to_str().unwrap(), "-p", "In the beginning", "-n", "8", "--temp", "0"];
    let alone = [&base[..], &["--layer-skip"]].concat();
    let error = failure(&start(&alone), 1);
    assert!(error.contains("there is no calibration of this model"), "{error}");
    // Nothing but the measuring is asked for.
    let calibration =
        ["calibrate", model.to_str().unwrap(), "-f", text.to_str().unwrap(), "--skip-layers=0.5"];
    assert!(start(&[&calibration[..], &CHUNKS].concat()).status.success());
    let skipped = start(&alone);
    assert!(stderr(&skipped).contains("skipping layers 1, 2, 3, 4 of 6"), "{}", stderr(&skipped));
    let first =
        ["run", "--layer-skip", model.to_str().unwrap(), "-p", "In the beginning", "-n", "8", "--temp", "0"];
    assert_eq!(stdout(&start(&first)), stdout(&skipped));
    // A file of that name is one.
    let there =
        common::terrace().current_dir(dir.path()).args(base).args(["--layer-skip", "./auto"]).output();
    assert!(failure(&there.unwrap(), 1).contains("./auto"));
}
