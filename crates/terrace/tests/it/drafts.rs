//! Drafts from the command line: the text stays, the passes become fewer.

use crate::common::{bundled, failure, json, run, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::process::Output;
use tempfile::TempDir;
use terrace_testkit::MtpReads;
use terrace_testkit::released::Released;

/// A text that repeats itself.
const PROMPT: &str = "And God said, Let there be light: and there was light. And God said, Let there be light: and \
                      there was light. And God said, Let there be";

fn generate(more: &[&str]) -> Output {
    let model = bundled();
    let args = ["run", model.to_str().unwrap(), "-p", PROMPT, "-n", "40", "--temp", "0", "--json"];
    run(args.iter().chain(&["--stream", "experts", "--ram-budget", "4MiB"]).chain(more))
}

fn number(report: &Value, key: &str) -> u64 {
    report["timings"][key].as_u64().unwrap_or_else(|| panic!("{key}: {report}"))
}

#[test]
fn drafts_change_the_passes_and_not_the_text() {
    let model = bundled();
    let plain = json(&generate(&[]));
    assert_eq!((number(&plain, "drafted"), number(&plain, "decode_passes")), (0, 39));
    assert!(plain["plan"].get("drafts").is_none());
    let dir = TempDir::new().unwrap();
    let recorded = dir.path().join("plain.json");
    fs::write(&recorded, plain.to_string()).unwrap();
    let recorded = format!("--draft-recorded={}", recorded.display());
    let own = model.to_str().unwrap();
    for (source, right) in [
        (&["--draft", "ngram"][..], false),
        (&["--draft", own, "--draft-max", "3"], true),
        (&["-md", own], true),
        (&[&recorded, "--draft-right", "0.6"], false),
    ] {
        let drafted = json(&generate(&[source, &["--draft-ungated"]].concat()));
        assert_eq!(drafted["tokens"], plain["tokens"], "{source:?}");
        let [checked, accepted, passes] =
            ["drafted", "accepted", "decode_passes"].map(|key| number(&drafted, key));
        assert!(checked > 0 && passes + accepted == 39, "{source:?}: {checked}, {accepted}, {passes}");
        assert!(!right || accepted == checked, "the model's own drafts are right: {accepted} of {checked}");
        assert!(drafted["plan"]["drafts"].is_string());
    }
    let gated = json(&generate(&["--draft", "auto"]));
    assert_eq!(gated["tokens"], plain["tokens"]);
}

/// Of a model with MTP layers, plans know what they take, and runs load them for drafts only.
#[test]
fn mtp_layers_are_planned_loaded_and_used_on_request() {
    let dir = TempDir::new().unwrap();
    let model = dir.path().join("mtp.gguf");
    Released::with_mtp("glm4moe", true, 1, MtpReads::Token).unwrap().write(&model, 1, None).unwrap();
    let model = model.to_str().unwrap();
    let args = ["run", model, "-p", "a text", "-n", "20", "--temp", "0", "--json", "--stream", "none"];
    let run_with = |more: &[&str]| json(&run(args.iter().chain(more)));
    let (plain, drafted) = (run_with(&[]), run_with(&["--draft", "mtp", "--draft-ungated"]));
    assert_eq!(drafted["tokens"], plain["tokens"]);
    assert!(number(&drafted, "accepted") > 0 && number(&plain, "drafted") == 0);
    assert_eq!(drafted["plan"]["drafts"], "the model's MTP layers");
    let planned =
        |more: &[&str]| json(&run(["plan", model, "--json", "--stream", "none"].iter().chain(more)));
    let resident = |plan: &Value| plan["resident"].as_u64().unwrap_or_else(|| panic!("{plan}"));
    let (without, with) = (planned(&[]), planned(&["--draft", "mtp"]));
    assert!(resident(&with) > resident(&without) * 6 / 5, "{} {}", resident(&with), resident(&without));
    assert_eq!(resident(&drafted["plan"]["placement"]), resident(&with));
    assert_eq!(resident(&plain["plan"]["placement"]), resident(&without));
    // Whether `auto` takes them depends on the machine; it is one of the two.
    let auto = resident(&planned(&["--draft", "auto"]));
    assert!([resident(&with), resident(&without)].contains(&auto), "{auto}");
    let inspected = run(["inspect", model]);
    let told = stdout(&inspected);
    assert!(told.lines().any(|line| line.starts_with("of these MTP") && line.contains('1')), "{told}");
    let error = failure(&run(["plan", bundled().to_str().unwrap(), "--draft", "mtp"]), 1);
    assert!(error.contains("no MTP layers"), "{error}");
}

#[test]
fn the_summary_says_how_many_drafts_were_right() {
    let model = bundled();
    let args = ["run", model.to_str().unwrap(), "-p", PROMPT, "-n", "30", "--temp", "0", "-v"];
    let output = run(args.iter().chain(&["--draft", "ngram", "--draft-ungated"]));
    let told = stderr(&output);
    assert!(told.contains("drafts from the text itself"), "{told}");
    assert!(told.lines().any(|line| line.starts_with("drafts: ") && line.contains(" right; ")), "{told}");
    assert!(!stdout(&output).is_empty());
}

#[test]
fn what_cannot_draft_is_refused() {
    let dir = TempDir::new().unwrap();
    let missing = dir.path().join("missing.gguf");
    let missing = missing.to_str().unwrap();
    let error = failure(&generate(&["--draft", missing]), 1);
    assert!(error.contains(missing), "{error}");
    let error = failure(&generate(&["--draft", "ngram", "--stock"]), 1);
    assert!(error.contains("stock llama.cpp"), "{error}");
    let error = failure(&generate(&["--draft", "mtp"]), 1);
    assert!(error.contains("no MTP layers"), "{error}");
    let other = crate::common::tiny(&dir);
    let error = failure(&generate(&["--draft", other.to_str().unwrap()]), 1);
    assert!(error.contains(other.to_str().unwrap()) && error.contains("token"), "{error}");
    for (words, said) in
        [(["--draft", ""], "empty"), (["--draft-max", "few"], "few"), (["--draft-max", "-1"], "-1")]
    {
        let error = failure(&generate(&words), 2);
        assert!(error.contains(said), "{words:?}: {error}");
    }
}
