//! `terrace plan --workers`: what more and more workers would give.

use crate::common::{failure, json, run, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::OnceLock;
use tempfile::TempDir;
use terrace_testkit::Mix;
use terrace_testkit::big::{self, Data, Preset};

fn machine(name: &str) -> String {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines");
    machines.join(format!("{name}.json")).display().to_string()
}

/// A model of 1T parameters, on a machine without a device, with workers that have one of 24 GB.
fn scaling(more: &[&str]) -> Output {
    static DIR: OnceLock<TempDir> = OnceLock::new();
    let path = DIR.get_or_init(|| TempDir::new().unwrap()).path().join("kimi-k2.gguf");
    if !path.exists() {
        big::write(&Mix::Q4KM.apply(Preset::KimiK2.spec()), &path, Data::Sparse).unwrap();
    }
    let (model, home, worker) =
        (path.display().to_string(), machine("desktop-64-gpu-12"), machine("desktop-64-gpu-24"));
    let fixed = ["plan", &model, "--machine", &home, "--what-if", "device=none", "--worker", &worker];
    run(fixed.iter().chain(&["--hits", "typical", "--ctx", "4096"]).chain(more))
}

fn points(more: &[&str]) -> Vec<Value> {
    let report = json(&scaling(&[&["--json"], more].concat()));
    report["workers"]["points"].as_array().unwrap().clone()
}

#[test]
fn more_workers_read_less_and_give_more() {
    let points = points(&["--workers", "0,8,32", "--home-price", "0.1", "--worker-price", "0.35"]);
    let number = |point: &Value, what: &str| point[what].as_f64().unwrap();
    let counts: Vec<f64> = points.iter().map(|point| number(point, "workers")).collect();
    assert_eq!(counts, [0.0, 8.0, 32.0]);
    for pair in points.windows(2) {
        assert!(number(&pair[1], "decode_tok_s") > number(&pair[0], "decode_tok_s"), "{pair:#?}");
        assert!(number(&pair[1], "read_per_token") < number(&pair[0], "read_per_token"), "{pair:#?}");
        assert!(number(&pair[1], "experts_away") > number(&pair[0], "experts_away"), "{pair:#?}");
    }
    assert_eq!((number(&points[0], "link_per_token"), number(&points[0], "used")), (0.0, 0.0));
    let (first, last) = (&points[0], &points[2]);
    assert!(number(last, "link_per_token") > 0.0 && number(first, "per_million") > 0.0, "{last:#?}");
}

#[test]
fn the_table_has_a_line_for_each_number_of_workers_and_clients() {
    let dir = TempDir::new().unwrap();
    let drawing = dir.path().join("scaling.svg");
    let output = scaling(&["--workers", "1..3", "--clients", "1,4", "--svg", drawing.to_str().unwrap()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let (_, text) = text.split_once("\nworkers    ").unwrap();
    assert!(text.contains("10 Gbit/s, 100 µs there and back"), "{text}");
    let begins =
        |line: &str| line.split_whitespace().take(2).map(str::parse::<u32>).collect::<Result<Vec<_>, _>>();
    let lines: Vec<Vec<u32>> =
        text.lines().filter_map(|line| begins(line).ok()).filter(|n| n.len() == 2).collect();
    let each = [[1, 1], [2, 1], [3, 1], [1, 4], [2, 4], [3, 4]];
    assert_eq!(lines, [each, each].concat(), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let svg = fs::read_to_string(&drawing).unwrap();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
}

#[test]
fn wrong_input_is_one_line() {
    for (args, code, part) in [
        (["--workers", "3..1"].as_slice(), 2, "a range like 1..8"),
        (&["--link", "10"], 2, "10Gbit"),
        (&["--latency", "5"], 2, "50us"),
        (&["--worker-price=-1"], 2, "0 or more"),
        (&["--worker-what-if", "fans=3"], 2, "ram=64GiB"),
        (&["--svg", "/nonexistent/dir/a.svg"], 1, "/nonexistent/dir/a.svg"),
    ] {
        let args = if args[0] == "--workers" { args.to_vec() } else { [args, &["--workers", "1"]].concat() };
        let error = failure(&scaling(&args), code);
        assert!(error.contains(part), "{args:?}: {error}");
    }
    let error = failure(&scaling(&["--link", "10Gbit"]), 2);
    assert!(error.contains("--workers"), "{error}");
    let error = failure(&scaling(&["--workers", "1", "--explain", "output.weight"]), 2);
    assert!(error.contains("cannot be used with"), "{error}");
    let old = run(["scaling", "a.gguf", "--workers", "1..3"]);
    assert!(failure(&old, 2).contains("terrace scaling: this command has been removed"), "{}", stderr(&old));
    assert!(stderr(&old).contains("hint: use `terrace plan MODEL --workers"), "{}", stderr(&old));
}
