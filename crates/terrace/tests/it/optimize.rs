//! `terrace optimize`, and the presets that later runs use.

use crate::common::{bundled, failure, json, run, stderr, stdout, terrace};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// The binary with a configuration directory of its own.
fn at(config: &Path) -> Command {
    let mut command = terrace();
    // Threads are one of the knobs.
    command.env("XDG_CONFIG_HOME", config).env_remove("TERRACE_THREADS");
    command
}

/// All knobs but one, set.
const GIVEN: [&str; 12] = [
    "--threads",
    "1",
    "--ubatch",
    "512",
    "--request-size",
    "1MiB",
    "--lookahead",
    "off",
    "--cache-policy",
    "lfu",
    "--slots-share",
    "99",
];

/// A search with a small budget, without drafts, and without a time limit unless `more` sets one.
fn optimize(config: &Path, more: &[&str]) -> Output {
    search(config, &[&["--draft", "off"], more].concat())
}

fn search(config: &Path, more: &[&str]) -> Output {
    let mut command = at(config);
    command.args(["optimize", bundled().to_str().unwrap(), "-n", "4", "--json"]).args(GIVEN);
    command.args(["--stream", "experts", "--ram-budget", "8MiB"]).args(more).output().unwrap()
}

/// No knob is left: the defaults are saved.
const NOTHING: [&str; 4] = ["--queue-depth", "16", "--minutes", "10"];

fn generate(config: &Path, more: &[&str]) -> Output {
    let mut command = at(config);
    command.args([
        "run",
        bundled().to_str().unwrap(),
        "-p",
        "In the beginning",
        "-n",
        "4",
        "--temp",
        "0",
        "--json",
    ]);
    command.args(["--stream", "experts", "--ram-budget", "8MiB"]).args(more).output().unwrap()
}

fn bench(config: &Path, more: &[&str]) -> Value {
    let mut command = at(config);
    command.args([
        "bench",
        bundled().to_str().unwrap(),
        "-n",
        "2",
        "-r",
        "1",
        "--json",
        "--stream",
        "experts",
    ]);
    json(&command.args(more).output().unwrap())
}

/// The only preset file.
fn kept(config: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(config.join("terrace/presets")).unwrap().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].as_ref().unwrap().path()
}

/// Replaces the settings that were found, which depend on the machine.
fn put(config: &Path, settings: &Value) {
    let path = kept(config);
    let mut file: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    file["presets"][0]["settings"] = settings.clone();
    fs::write(path, file.to_string()).unwrap();
}

#[test]
fn what_is_found_is_kept_and_later_runs_take_it() {
    let config = TempDir::new().unwrap();
    let output = optimize(config.path(), &["--minutes", "10"]);
    let report = json(&output);
    assert_eq!(report["preset"], kept(config.path()).to_str().unwrap());
    assert!(
        report["complete"] == true
            && report["runs"].as_u64().unwrap() >= 12
            && report["default_ms"].as_f64().unwrap() > 0.0,
        "{report}"
    );
    let trials = report["trials"].as_array().unwrap();
    assert!(trials.len() >= 4, "{report}");
    // One line each, after those that list the knobs.
    let text = stderr(&output);
    for trial in trials {
        let line = format!("{}: ", trial["settings"].as_str().unwrap());
        assert!(text.lines().any(|l| l.starts_with(&line) && l.contains(", best so far ")), "{line}: {text}");
    }
    assert!(text.lines().any(|line| line.starts_with("--queue-depth: auto or 8, ")), "{text}");
    let file: Value = serde_json::from_slice(&fs::read(kept(config.path())).unwrap()).unwrap();
    assert_eq!(file["presets"][0]["settings"], report["settings"]);

    put(config.path(), &serde_json::json!({ "threads": "1", "cache-policy": "lfu", "queue-depth": "4" }));
    let plain = json(&generate(config.path(), &["--preset", "off"]));
    assert_eq!(plain.get("preset"), None);
    let output = generate(config.path(), &["-v"]);
    let taken = json(&output);
    assert_eq!(taken["tokens"], plain["tokens"]);
    let settings = &taken["preset"]["settings"];
    assert_eq!(*settings, serde_json::json!({ "threads": "1", "cache-policy": "lfu", "queue-depth": "4" }));
    assert_eq!(taken["plan"]["threads"], 1);
    let text = stderr(&output);
    assert!(text.contains("preset --cache-policy lfu --queue-depth 4 --threads 1 ("), "{text}");

    let report = bench(config.path(), &[]);
    assert_eq!(report["preset"]["settings"], *settings);
    assert_eq!(report["sides"]["terrace"]["plan"]["threads"], 1);
}

/// Sources of drafts are tried like other settings. What a preset says of them is no demand: a run that cannot
/// have them goes without, and says so.
#[test]
fn drafts_are_tried_and_a_preset_does_not_insist() {
    let config = TempDir::new().unwrap();
    let small = config.path().join("small.gguf");
    fs::copy(bundled(), &small).unwrap();
    let small = small.to_str().unwrap();
    let output = search(config.path(), &["--queue-depth", "16", "--minutes", "10", "--try-draft", small]);
    let (report, text) = (json(&output), stderr(&output));
    assert!(text.lines().any(|line| line == format!("--draft: off or ngram, {small}")), "{text}");
    for source in ["ngram", small] {
        let trials = report["trials"].as_array().unwrap();
        let trial = trials.iter().find(|trial| trial["settings"] == format!("--draft {source}")).unwrap();
        assert_ne!(trial["verdict"], "unfit", "the tokens are the same: {trial}");
    }

    let plain = json(&generate(config.path(), &["--preset", "off"]));
    assert_eq!(plain["plan"].get("drafts"), None);
    for (source, told) in [("ngram", "the text"), (small, "small.gguf")] {
        put(config.path(), &serde_json::json!({ "draft": source }));
        let report = json(&generate(config.path(), &[]));
        let drafts = report["plan"]["drafts"].as_str().unwrap();
        assert!(drafts.contains(told) && report["tokens"] == plain["tokens"], "{report}");
        let none = json(&generate(config.path(), &["--draft", "off"]));
        assert_eq!((none["plan"].get("drafts"), none.get("preset")), (None, None));
        let output = generate(config.path(), &["--lossy", "prior=0.1"]);
        assert_eq!(json(&output)["plan"].get("drafts"), None);
        let text = stderr(&output);
        assert!(text.contains("no drafts: experts are chosen by what is in memory"), "{text}");
        let sides = bench(config.path(), &["--baseline=cpu"])["sides"].clone();
        assert!(sides["terrace"]["plan"]["drafts"].is_string(), "{sides}");
        assert_eq!(sides["stock"]["plan"].get("drafts"), None);
    }
    put(config.path(), &serde_json::json!({ "draft": "mtp" }));
    let output = generate(config.path(), &[]);
    assert_eq!(json(&output)["tokens"], plain["tokens"]);
    let text = stderr(&output);
    assert!(text.contains("no drafts: the model has no MTP layers"), "{text}");
    fs::remove_file(small).unwrap();
    put(config.path(), &serde_json::json!({ "draft": small }));
    let output = generate(config.path(), &[]);
    assert_eq!(json(&output)["tokens"], plain["tokens"]);
    let text = stderr(&output);
    assert!(text.contains("`draft` is ignored: ") && text.contains("does not exist"), "{text}");
    failure(&search(config.path(), &["--try-draft", small]), 1);
}

/// Flags, variables and the configuration file all override it.
#[test]
fn a_preset_is_the_last_layer() {
    let config = TempDir::new().unwrap();
    json(&optimize(config.path(), &NOTHING));
    put(
        config.path(),
        &serde_json::json!({ "threads": "1", "cache-policy": "lfu", "lookahead": "off", "ubatch": "64" }),
    );
    fs::write(config.path().join("terrace/config.toml"), "lookahead = \"1MiB\"\n").unwrap();
    let mut command = at(config.path());
    command.args(["run", bundled().to_str().unwrap(), "-p", "In the beginning", "-n", "2", "--json"]);
    command.args(["--stream", "experts", "--threads", "2"]).env("TERRACE_CACHE_POLICY", "lru");
    let report = json(&command.output().unwrap());
    assert_eq!(report["preset"]["settings"], serde_json::json!({ "ubatch": "64" }));
    assert_eq!((&report["plan"]["threads"], &report["plan"]["ubatch"]), (&2.into(), &64.into()));
}

#[test]
fn what_is_wrong_with_a_preset_is_a_warning() {
    let config = TempDir::new().unwrap();
    json(&optimize(config.path(), &NOTHING));
    let path = kept(config.path());
    let good = fs::read_to_string(&path).unwrap();
    put(config.path(), &serde_json::json!({ "threads": "many", "queue-depth": "4" }));
    let output = generate(config.path(), &[]);
    assert_eq!(json(&output)["preset"]["settings"], serde_json::json!({ "queue-depth": "4" }));
    let text = stderr(&output);
    assert!(
        text.starts_with("warning: ") && text.contains("`threads`") && text.lines().count() == 1,
        "{text}"
    );
    for (bad, part) in [
        ("{".to_owned(), "not a preset file"),
        (good.replace("\"version\": 1", "\"version\": 7"), "version 7"),
        (good.replace("tiny-moe", "other"), "another model"),
    ] {
        fs::write(&path, bad).unwrap();
        let output = generate(config.path(), &[]);
        assert_eq!(json(&output).get("preset"), None);
        let text = stderr(&output);
        assert!(text.starts_with("warning: ") && text.contains(part) && text.lines().count() == 1, "{text}");
    }
    // The file is overwritten.
    json(&optimize(config.path(), &NOTHING));
    assert_eq!(stderr(&generate(config.path(), &[])), "");
}

/// After Ctrl-C the best settings so far are saved.
#[test]
fn an_interrupted_search_keeps_what_it_has() {
    let config = TempDir::new().unwrap();
    let mut command = at(config.path());
    command.args([
        "optimize",
        bundled().to_str().unwrap(),
        "--draft",
        "off",
        "--minutes",
        "10",
        "-n",
        "4",
        "--stream",
        "experts",
    ]);
    command.args(["--ram-budget", "8MiB"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The first verdict: by then the defaults have been measured.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(", best so far ")));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("stopped before all values were tried") && text.contains("saved in "), "{text}");
    assert!(kept(config.path()).is_file());
}

#[test]
fn what_cannot_be_searched_is_said() {
    let config = TempDir::new().unwrap();
    let output = optimize(config.path(), &["--minutes", "0.0001"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let text = stderr(&output);
    assert!(text.contains("error: 0.0001 minutes are not enough"), "{text}");
    assert!(!config.path().join("terrace").exists(), "nothing was found");
    failure(&run(["optimize", "x.gguf", "--minutes", "-1"]), 2);
    failure(&run(["optimize", "/nonexistent/x.gguf"]), 1);
    let line = failure(&run(["run", "x.gguf", "-p", "a", "--preset", "fast"]), 2);
    assert!(line.contains("auto, off"), "{line}");
    failure(&run(["run", "x.gguf", "-p", "a", "--request-size", "1"]), 2);
}

/// Slots x lookahead x queue depth, as a table and as a drawing.
#[test]
fn a_curve_says_where_it_is_flat() {
    let config = TempDir::new().unwrap();
    let svg = config.path().join("curve.svg");
    let curve = |more: &[&str]| {
        let mut command = at(config.path());
        command.args(["optimize", bundled().to_str().unwrap(), "-n", "2", "--curve", svg.to_str().unwrap()]);
        command.args(["--ram-budget", "8MiB", "--stream", "experts"]).args(more).output().unwrap()
    };
    // Axes that are set have one value.
    let output = curve(&["--slots-share", "75", "--lookahead", "4MiB", "--json", "--minutes", "10"]);
    let report = json(&output);
    let points = report["points"].as_array().unwrap();
    let settings: Vec<&str> = points.iter().map(|point| point["settings"].as_str().unwrap()).collect();
    assert_eq!(settings.len(), 4);
    assert_eq!(settings[0], "--slots-share 75 --lookahead 4MiB --queue-depth 2");
    assert!(
        points.iter().all(|point| point["ms"].as_f64().unwrap() > 0.0 && point["rounds"] == 3),
        "{points:#?}"
    );
    assert_eq!((&report["complete"], &report["runs"]), (&true.into(), &13.into()), "a warm-up first");
    let flat = report["flat"].as_array().unwrap();
    assert!(flat.len() == 1 && flat[0].as_str().unwrap().starts_with("--queue-depth: "), "{flat:?}");
    let drawing = fs::read_to_string(&svg).unwrap();
    assert!(drawing.starts_with("<svg ") && drawing.contains("--slots-share 75"), "{drawing}");
    assert!(!config.path().join("terrace").exists(), "a curve is no preset");
    // A table for people; the drawing is replaced.
    let output = curve(&["--slots-share", "75", "--queue-depth", "8", "--lookahead", "off"]);
    let text = stdout(&output);
    assert!(text.contains("--slots-share 75, s per run") && text.contains("drawn in "), "{text}");
    // What does not stream has none.
    let model = bundled();
    let whole = ["optimize", model.to_str().unwrap(), "-n", "2", "--mmap", "--curve", svg.to_str().unwrap()];
    let error = failure(&at(config.path()).args(whole).output().unwrap(), 2);
    assert!(error.contains("does not stream"), "{error}");
}
