//! `terrace calibrate` and `--lossy`, end to end.

use crate::common::{bundled, error_line, failure, json, run, stderr, stdout, terrace, tiny};
use crate::server::Server;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Output;
use tempfile::TempDir;
use terrace_engine::LossySetting;

const STREAMED: [&str; 4] = ["--stream", "experts", "--ram-budget", "8MiB"];

fn calibrate(more: &[&str]) -> Output {
    let model = bundled();
    let text = model.with_file_name("sample.kjv.txt");
    let args =
        ["calibrate", model.to_str().unwrap(), "-f", text.to_str().unwrap(), "--ctx", "128", "--chunks", "2"];
    run(args.iter().chain(&STREAMED).chain(more))
}

fn generate(more: &[&str]) -> Output {
    let model = bundled();
    let args = ["run", model.to_str().unwrap(), "-p", "In the beginning", "-n", "24", "--temp", "0"];
    run(args.iter().chain(&STREAMED).chain(more))
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_least_reading_settings_within_the_limit_are_written_and_used() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("lossy.json");
    let path = file.to_str().unwrap();
    let tries = ["--try", "prior=0.1", "--try", "prior=0.8,keep=0", "--try", "skip=2", "--try", "experts=3"];
    let out = ["-o", path, "--max-kld", "0.2", "--json"];
    let args: Vec<&str> = tries.iter().chain(&out).copied().collect();
    let report = json(&calibrate(&args));
    let tried = report["tried"].as_array().unwrap();
    assert_eq!(tried.len(), 4, "{report}");
    let number = |value: &Value| value.as_f64().unwrap();
    let reads = |one: &Value| number(&one["cost"]["read_per_token"][1]);
    for one in tried {
        let cost = &one["cost"];
        assert!(reads(one) < number(&cost["read_per_token"][0]), "{one}");
        assert!(number(&cost["kld"]) > 0.0 && (0.1..=1.0).contains(&number(&cost["same_top"])), "{one}");
        assert_eq!(number(&cost["perplexity"][0]), number(&report["perplexity"]), "the same base");
    }
    // By the rule: of those within the limit, the one that reads least.
    let within = tried.iter().filter(|one| number(&one["cost"]["kld"]) <= 0.2);
    let best = within.min_by(|a, b| reads(a).total_cmp(&reads(b))).expect("one within the limit");
    let written = read(&file);
    assert_eq!((&written["settings"], &written["cost"]), (&best["settings"], &best["cost"]));

    // The file does what its settings do, and the run says so first, with the cost.
    let by_file = generate(&["--lossy", path, "--json"]);
    let settings = report["best"].as_str().unwrap();
    assert!(stderr(&by_file).contains(&format!("lossy: {settings}; KLD ")), "{}", stderr(&by_file));
    let by_file = json(&by_file);
    let by_settings = generate(&["--lossy", settings, "--json"]);
    assert!(stderr(&by_settings).contains("its cost was not measured"), "{}", stderr(&by_settings));
    assert_eq!(json(&by_settings)["lossy"]["settings"], by_file["lossy"]["settings"]);
    assert_eq!(by_file["lossy"]["settings"], settings);
    assert_eq!(by_file["lossy"]["cost"], best["cost"]);
    assert_eq!(by_file["plan"]["lossy"]["cost"], best["cost"]);
}

#[test]
fn nearly_nothing_lost_is_nothing_lost_and_more_reads_less() {
    let exact = json(&generate(&["--json"]));
    assert!(exact["lossy"].is_null() && exact["plan"]["lossy"].is_null());
    let nearly = json(&generate(&["--json", "--lossy", "prior=0.000001"]));
    assert_eq!(nearly["tokens"], exact["tokens"]);
    assert_eq!(nearly["lossy"]["substituted"], 0);
    // 6 layers of 4 experts for each token after the first, which comes with the prompt.
    assert_eq!(nearly["lossy"]["pairs"], 23 * 6 * 4);
    let read = |report: &Value| report["decode"]["bytes_read"].as_u64().unwrap();
    for (settings, what) in [("prior=0.5,keep=0", "substituted"), ("drop=2", "dropped")] {
        let lossy = json(&generate(&["--json", "--lossy", settings]));
        assert!(lossy["lossy"][what].as_u64().unwrap() > 0, "{lossy}");
        assert!(read(&lossy) < read(&exact), "{settings}: {} and {}", read(&lossy), read(&exact));
    }
    let verbose = generate(&["-v", "--lossy", "drop=2"]);
    assert!(stderr(&verbose).contains("expert choices"), "{}", stderr(&verbose));
    // What does not depend on what has been read by then gives the same text each time.
    let skipped = generate(&["--lossy", "skip=2"]);
    assert_ne!(stdout(&skipped), stdout(&generate(&[])));
    let model = bundled();
    let args = ["run", model.to_str().unwrap(), "-p", "In the beginning", "-n", "24", "--temp", "0"];
    let by_environment = terrace().args(args).args(STREAMED).env("TERRACE_LOSSY", "skip=2").output().unwrap();
    assert_eq!(stdout(&by_environment), stdout(&skipped));
}

/// Prompts are computed exactly, also where a graph of one has one token.
#[test]
fn a_prompt_of_lone_tokens_is_not_routed_with_loss() {
    let lossy = json(&generate(&["--json", "--lossy", "drop=2", "--ubatch", "1"]));
    assert_eq!(lossy["lossy"]["pairs"], 23 * 6 * 4);
}

/// Every lossy setting is marked wherever results are reported, and nothing else is.
#[test]
fn every_lossy_setting_has_one_mark_everywhere() {
    let dir = TempDir::new().unwrap();
    let skip = dir.path().join("skip.json");
    let skip = skip.to_str().unwrap();
    let model = bundled();
    let (model, text) = (model.to_str().unwrap(), model.with_file_name("sample.kjv.txt"));
    let text = text.to_str().unwrap();
    let chunks = ["-f", text, "--ctx", "128", "--chunks", "1"];
    let made = ["calibrate", model, "-o", skip, "--skip-layers=0.5"];
    let made = run(made.iter().chain(&STREAMED).chain(&chunks));
    assert!(made.status.success(), "{}", stderr(&made));
    let guide = include_str!("../../../../docs/guide/quality.md");
    let mut seen = Vec::new();
    for (options, setting, value) in [
        (&["--lossy", "drop=2"][..], Some(LossySetting::Lossy), "drop=2"),
        (&["--layer-skip", skip], Some(LossySetting::LayerSkip), "1+2+3+4"),
        (&["--kv-type", "q8_0"], Some(LossySetting::KvType), "q8_0"),
        (&["--cache-type-v", "q4_0"], Some(LossySetting::KvType), "f16/q4_0"),
        (&["-ctk", "bf16", "-ctv", "f32"], Some(LossySetting::KvType), "bf16/f32"),
        (&["--kv-type", "f32"], None, ""),
        (&["--kv-type", "f16"], None, ""),
        (&["--hot-cache", "off", "--threads-batch", "2"], None, ""),
    ] {
        seen.extend(setting);
        let name = setting.map(|setting| serde_json::to_value(setting).unwrap());
        let check = |lossy: &Value, of: &str| match &name {
            None => assert!(lossy.is_null(), "{of}, {options:?}: {lossy}"),
            Some(name) => {
                let marks = lossy["marks"].as_array().unwrap_or_else(|| panic!("{of}, {options:?}: {lossy}"));
                assert_eq!(marks.len(), 1, "{of}, {options:?}: {lossy}");
                assert_eq!((&marks[0]["setting"], &marks[0]["value"]), (name, &json!(value)), "{of}");
                assert!(marks[0]["text"].as_str().is_some_and(|text| text.len() > 5), "{of}: {lossy}");
            }
        };
        let output = generate(&[&["--json", "-v"], options].concat());
        check(&json(&output)["lossy"], "run");
        let plan = |more: &[&str]| run(["plan", model].iter().chain(&STREAMED).chain(options).chain(more));
        check(&json(&plan(&["--json"]))["lossy"], "plan");
        assert_eq!(stdout(&plan(&[])).contains("\nlossy: "), setting.is_some(), "{options:?}");
        // In the plan, as a warning, and in the summary.
        let lines = stderr(&output).matches("lossy: ").count();
        assert_eq!(lines >= 2, setting.is_some(), "{options:?}: {}", stderr(&output));
        let args = ["perplexity", model, "--json"];
        let output = run(args.iter().chain(&chunks).chain(&STREAMED).chain(options));
        check(&json(&output)["lossy"], "perplexity");
        let bench = ["bench", model, "-n", "2", "--repetitions", "1"];
        let bench = |more: &[&str]| run(bench.iter().chain(&STREAMED).chain(options).chain(more));
        check(&json(&bench(&["--json"]))["sides"]["terrace"]["lossy"], "bench");
        assert_eq!(stdout(&bench(&[])).contains("\nlossy: "), setting.is_some(), "{options:?}");
        let server = Server::start(&bundled(), STREAMED.iter().chain(options));
        check(&server.get("/props").ok()["terrace"]["lossy"], "/props");
        check(&server.get("/v1/models").ok()["data"][0]["meta"]["lossy"], "/v1/models");
        let body = json!({"prompt": "In the beginning", "max_tokens": 2, "temperature": 0});
        check(&server.post("/v1/completions", &body).ok()["terrace"]["lossy"], "an answer");
        let answer = server.post("/v1/embeddings", &json!({"input": "In the beginning"}));
        check(&answer.ok()["terrace"]["lossy"], "an embedding");
        let header = name.as_ref().map(|name| format!("{}={value}", name.as_str().unwrap()));
        assert_eq!(answer.header("x-terrace-lossy"), header.unwrap_or_default(), "{options:?}");
        if let Some(name) = name {
            let row = format!("| `{}` |", name.as_str().unwrap());
            assert!(guide.contains(&row), "the table of lossy settings has no row of {name}");
        }
    }
    for setting in LossySetting::ALL {
        assert!(seen.contains(&setting), "{setting:?} is tried");
    }
}

#[test]
fn answers_of_a_server_say_what_was_lost() {
    let server = Server::start(&bundled(), STREAMED.iter().chain(&["--lossy", "drop=2"]));
    let body = json!({"prompt": "In the beginning", "max_tokens": 12, "temperature": 0});
    let answer = server.post("/v1/completions", &body).ok();
    let lossy = &answer["terrace"]["lossy"];
    assert_eq!(lossy["settings"], "drop=2", "{answer}");
    assert_eq!(lossy["pairs"], 11 * 6 * 4, "{answer}");
    assert!(lossy["dropped"].as_u64().unwrap() > 0, "{answer}");
}

#[test]
fn a_budget_is_kept_by_measuring() {
    let model = bundled();
    let args = ["run", model.to_str().unwrap(), "-p", "In the beginning", "-n", "300", "--temp", "0"];
    let generate = |more: &[&str]| run(args.iter().chain(&STREAMED).chain(&["--ignore-eos"]).chain(more));
    let number = |value: &Value| value.as_f64().unwrap();
    let output = generate(&["--json", "--lossy", "kld=0.02"]);
    let words = stderr(&output);
    assert!(words.contains("lossy: kld=0.02; the divergence is kept at about 0.02 by measuring"), "{words}");
    assert!(words.contains("nats per token of 0.02 spent on 299 tokens"), "{words}");
    let report = json(&output);
    let lossy = &report["lossy"];
    assert_eq!(lossy["settings"], "kld=0.02");
    let budget = &lossy["budget"];
    assert_eq!((number(&budget["budget"]), &budget["tokens"]), (0.02, &json!(299)));
    // Single tokens cost up to ten times the mean. Once they have cost more than the budget, nothing is lost.
    let [spent, drop, prior] = ["spent", "drop", "prior"].map(|field| number(&budget[field]));
    assert!((1e-3..=0.02 * 2.0).contains(&spent), "{budget}");
    assert_eq!(spent > 0.02, drop == 0.0 && prior == 0.0, "{budget}");
    // Every 4th of the first 160 tokens, and later every 4th to 8th, except for those that lose nothing.
    assert!((10..=40 + 35).contains(&budget["exact_passes"].as_u64().unwrap()), "{budget}");
    assert!(lossy["dropped"].as_u64().unwrap() > 0, "{lossy}");
    let read = |report: &Value| report["decode"]["bytes_read"].as_u64().unwrap();
    let exact = json(&generate(&["--json"]));
    assert!(read(&report) < read(&exact), "{} and {}", read(&report), read(&exact));
    let none = json(&generate(&["--json", "--lossy", "kld=0"]));
    assert_eq!(none["tokens"], exact["tokens"]);
    assert!(none["lossy"].is_null(), "{}", none["lossy"]);
}

#[test]
fn a_server_tells_what_is_left_of_its_budget() {
    let server = Server::start(&bundled(), STREAMED.iter().chain(&["--lossy", "kld=0.1"]));
    let body = json!({"prompt": "In the beginning", "max_tokens": 25, "temperature": 0, "ignore_eos": true});
    let answer = server.post("/v1/completions", &body).ok();
    let budget = &answer["terrace"]["lossy"]["budget"];
    assert_eq!((&budget["tokens"], &budget["exact_passes"]), (&json!(24), &json!(6)), "{answer}");
    let metrics = server.get("/metrics").text;
    let spent = format!("terrace_lossy_spent_nats {}", budget["spent"].as_f64().unwrap());
    let lines = [
        "terrace_lossy_budget_nats 0.1",
        "terrace_lossy_tokens_total 24",
        "terrace_lossy_exact_passes_total 6",
    ];
    for line in lines.into_iter().chain([&*spent]) {
        assert!(metrics.lines().any(|of| of == line), "{line}\n{metrics}");
    }
}

/// The divergence of a text from its evaluation without loss is the one that the budget's own measurements say.
#[test]
fn the_budget_is_what_calibrations_measure() {
    let model = bundled();
    let text = model.with_file_name("sample.kjv.txt");
    let args = ["calibrate", model.to_str().unwrap(), "-f", text.to_str().unwrap(), "--ctx", "512"];
    let more = ["--chunks", "4", "--try", "kld=0.02", "--json", "--lookahead", "off"];
    let report = json(&run(args.iter().chain(&STREAMED).chain(&more)));
    let cost = &report["tried"][0]["cost"];
    let number = |value: &Value| value.as_f64().unwrap();
    assert_eq!(cost["kept"]["tokens"], 2048, "{cost}");
    assert!(number(&cost["kept"]["spent"]) <= 0.02 * 1.2, "{cost}");
    assert!((0.02 * 0.4..=0.02 * 1.4).contains(&number(&cost["kld"])), "{cost}");
    let [without, with] = [0, 1].map(|side| number(&cost["read_per_token"][side]));
    assert!(with < without * 0.9, "{cost}");
}

#[test]
fn what_cannot_be_lost_is_refused() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("lossy.json");
    let path = file.to_str().unwrap();
    let error = failure(&generate(&["--stock", "--lossy", "prior=0.1"]), 1);
    assert!(error.contains("stock llama.cpp computes exactly"), "{error}");
    let error = failure(&generate(&["--draft", "ngram", "--lossy", "prior=0.1"]), 1);
    assert!(error.contains("drafts cannot be checked"), "{error}");
    // Of what is the same in every pass, drafts can be checked.
    assert!(generate(&["--draft", "ngram", "--lossy", "skip=2"]).status.success());
    let error = failure(&generate(&["--lossy", "experts=9"]), 1);
    assert!(error.contains("uses 4 experts per token"), "{error}");
    for (settings, part) in [
        ("prior=3", "from 0 to 1"),
        ("warm=1", "none of"),
        ("kld=0.02,drop=1", "kld chooses drop"),
        ("skip=5", "layer 5 of 6"),
    ] {
        let output = generate(&["--lossy", settings]);
        assert!(stderr(&output).contains(part) && !output.status.success(), "{}", stderr(&output));
    }
    let error = failure(&generate(&["--lossy", path]), 1);
    assert!(error.contains("lossy.json"), "{error}");
    std::fs::write(&file, r#"{"version": 9, "model": {}, "settings": {}, "cost": {}}"#).unwrap();
    assert!(failure(&generate(&["--lossy", path]), 1).contains("version 9 is not supported"));

    assert!(failure(&calibrate(&["--lossy", "drop=1"]), 2).contains("as it is"));
    assert!(failure(&calibrate(&["--try", "prior=0"]), 2).contains("changes nothing"));
    let none = calibrate(&["--try", "prior=1,keep=0", "--max-kld", "0", "-o", path]);
    assert_eq!(none.status.code(), Some(2));
    assert!(error_line(&stderr(&none)).contains("none are written"), "{}", stderr(&none));
    assert!(stdout(&none).contains("no settings have a KLD of at most 0"), "{}", stdout(&none));
    assert_eq!(read(&file)["version"], 9, "the file stays as it was");
    let settings = calibrate(&["--try", "drop=1", "-o", path, "--max-kld", "9"]);
    assert!(settings.status.success(), "{}", stderr(&settings));
    let other = tiny(&dir);
    let error = failure(&run(["run", other.to_str().unwrap(), "-p", "x", "-n", "1", "--lossy", path]), 1);
    assert!(error.contains("made for \"terrace-tiny-moe\""), "{error}");
}

#[test]
fn experts_in_fewer_bits_are_made_measured_and_used() {
    let dir = TempDir::new().unwrap();
    let (low, file) = (dir.path().join("low.gguf"), dir.path().join("lossy.json"));
    let (low, file) = (low.to_str().unwrap(), file.to_str().unwrap());
    let model = bundled();
    let make = |more: &[&str]| {
        let args = ["quantize", model.to_str().unwrap(), low, "--type", "Q2_K", "--allow-requantize"];
        run(args.iter().chain(more))
    };
    let error = make(&["--only", "no such tensor"]);
    assert!(stderr(&error).contains("no tensor of"), "{}", stderr(&error));
    let made = make(&["--only", "exps", "--tensor", "exps=q2_K", "--json"]);
    assert!(made.status.success(), "{}", stderr(&made));
    assert_eq!(json(&made)["tensors"].as_array().unwrap().len(), 18, "gate, up and down of 6 layers");
    let settings = format!("low={low},low-below=all");
    let out = ["--try", &settings, "--max-kld", "9", "-o", file, "--json"];
    let report = json(&calibrate(&out));
    let cost = &report["tried"][0]["cost"];
    assert!(cost["low"].as_f64().unwrap() > 0.05 && cost["kld"].as_f64().unwrap() > 0.0, "{report}");

    let by_file = generate(&["--lossy", file, "--json"]);
    assert!(
        stderr(&by_file).contains(&format!("lossy: {settings},low-keep=1; KLD ")),
        "{}",
        stderr(&by_file)
    );
    let lossy = json(&by_file)["lossy"].clone();
    assert!(lossy["low"].as_u64().unwrap() > 0 && lossy["dropped"] == 0, "{lossy}");

    // Another file of the same kind is noticed.
    let other = make(&["--only", "exps", "--tensor", "exps=q3_K", "--overwrite"]);
    assert!(other.status.success(), "{}", stderr(&other));
    let error = failure(&generate(&["--lossy", file]), 1);
    assert!(error.contains("not the file that was calibrated"), "{error}");
    let error = failure(&generate(&["--lossy", &settings, "--verify"]), 1);
    assert!(error.contains("not verified"), "{error}");
}
