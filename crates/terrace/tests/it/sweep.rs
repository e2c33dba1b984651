//! `terrace sweep`: its figures are those of the models that it writes, and its journal resumes.

use crate::common::{bundled, failure, json, run, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

const CHUNKS: [&str; 4] = ["--chunks", "2", "--ctx", "128"];
const TENSORS: [&str; 2] = ["--tensor", r"blk\.[03]\.ffn_(up|down)_exps"];

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn text() -> PathBuf {
    bundled().with_file_name("sample.kjv.txt")
}

/// The bundled model in another type.
fn donor(dir: &TempDir, ty: &str) -> PathBuf {
    let out = dir.path().join(format!("{ty}.gguf"));
    let rule = format!("ffn_(up|down)_exps={ty}");
    let model = bundled();
    let args = ["--type", "copy", "--tensor", &rule, "--allow-requantize"];
    let output = run(["quantize", path(&model), path(&out)].iter().chain(&args));
    assert!(output.status.success(), "{}", stderr(&output));
    out
}

fn sweep(out: &Path, donors: &[&Path], more: &[&str]) -> Output {
    let (model, text) = (bundled(), text());
    let mut args = vec!["sweep", path(&model), "-f", path(&text), "-o", path(out)];
    donors.iter().for_each(|donor| args.extend(["--donor", path(donor)]));
    args.extend(CHUNKS.iter().chain(more));
    run(args)
}

fn lines(file: &Path) -> Vec<Value> {
    fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_sweep_finds_a_mix_and_its_model_is_what_was_measured() {
    let dir = TempDir::new().unwrap();
    let (q2, q8) = (donor(&dir, "q2_K"), donor(&dir, "q8_0"));
    let (out, model) = (dir.path().join("s.jsonl"), dir.path().join("mix.gguf"));
    let own = json(&run(["quantize", path(&bundled()), "--type", "copy", "--dry-run", "--json"]));
    // Half of what q2_K would save on four tensors.
    let budget = (own["bytes"].as_u64().unwrap() - 1_000_000).to_string();
    let table = dir.path().join("kld.csv");
    let assign = ["--csv-for-assign", path(&table)];
    let args = [&TENSORS[..], &["--budget", &budget, "--write", path(&model), "--json"], &assign].concat();
    let report = json(&sweep(&out, &[&q2, &q8], &args));

    let steps = report["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 8);
    let kld = |step: &Value| step["kld"].as_f64().unwrap();
    for step in steps.iter().filter(|step| step["ty"] == "q2_K") {
        assert!(kld(step) > 1e-4, "{step}");
        let other = steps.iter().find(|s| s["ty"] == "q8_0" && s["subject"] == step["subject"]).unwrap();
        assert!(kld(other) < kld(step), "what q4_K has lost, q8_0 keeps: {other} {step}");
    }
    let csv = fs::read_to_string(dir.path().join("s.csv")).unwrap();
    assert_eq!(csv.lines().count(), 9);
    assert!(csv.lines().all(|line| line.split(',').count() == 13), "{csv}");
    // A row per type, a column per tensor.
    let assign = fs::read_to_string(&table).unwrap();
    let cells: Vec<Vec<&str>> = assign.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(
        (cells.len(), cells[0][0], cells[1][0], cells[2][0]),
        (3, "QTYPE", "q2_K", "q8_0"),
        "{assign}"
    );
    for step in steps {
        let column = cells[0].iter().position(|name| *name == step["subject"]).unwrap();
        let row = cells.iter().find(|row| row[0] == step["ty"]).unwrap();
        assert_eq!(row[column].parse::<f64>().unwrap(), kld(step), "{assign}");
    }
    let layers = sweep(&out, &[&q2], &["--group", "layer", "--csv-for-assign", path(&table)]);
    assert!(stderr(&layers).contains("measures layers"), "{}", stderr(&layers));
    let svg = fs::read_to_string(dir.path().join("s.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>") && svg.contains("ffn_down_exps"));

    // The mix is within the size, and as a model it gives the figures that were measured in place.
    let mix = &report["mixes"][0];
    assert!(mix["model_bytes"].as_u64().unwrap() <= budget.parse().unwrap());
    assert!(!mix["choice"].as_object().unwrap().is_empty());
    let text = text();
    let base = dir.path().join("base.kld");
    let args = ["-f", path(&text), "--save-logits", path(&base), "--json"];
    json(&run(["perplexity", path(&bundled())].iter().chain(&args).chain(&CHUNKS)));
    let compared =
        json(&run(["perplexity", path(&model), "--kld", path(&base), "--json"].iter().chain(&CHUNKS)));
    assert_eq!(compared["kld"]["value"], mix["kld"]);
    assert_eq!(compared["perplexity"]["value"], mix["perplexity"]);

    // The recipe gives the same model.
    let recipe = dir.path().join("s.recipe");
    let again = dir.path().join("again.gguf");
    let args = ["--type", "copy", "--recipe", path(&recipe), "--allow-requantize"];
    let output = run(["quantize", path(&bundled()), path(&again)].iter().chain(&args));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(fs::read(&again).unwrap() == fs::read(&model).unwrap());
    // Only the requested files remain.
    let mut left: Vec<String> =
        fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    left.sort();
    let expected = [
        "again.gguf",
        "base.kld",
        "kld.csv",
        "mix.gguf",
        "q2_K.gguf",
        "q8_0.gguf",
        "s.csv",
        "s.jsonl",
        "s.recipe",
        "s.svg",
    ];
    assert_eq!(left, expected);
}

#[test]
fn a_sweep_goes_on_streamed_where_it_was_mapped() {
    let dir = TempDir::new().unwrap();
    let q2 = donor(&dir, "q2_K");
    let out = dir.path().join("s.jsonl");
    let whole = sweep(&out, &[&q2], &TENSORS);
    assert!(whole.status.success(), "{}", stderr(&whole));
    let all = lines(&out);
    let steps = |lines: &[Value]| -> Vec<(Value, Value, Value)> {
        let steps = lines.iter().filter(|line| line["kind"] == "step");
        steps.map(|s| (s["subject"].clone(), s["kld"].clone(), s["fingerprint"].clone())).collect()
    };
    assert_eq!(steps(&all).len(), 4);

    // Two steps, and half of a third.
    let text = fs::read_to_string(&out).unwrap();
    let third = text.match_indices("\"kind\":\"step\"").nth(2).unwrap().0;
    fs::write(&out, &text[..third + 100]).unwrap();
    let streamed = [&TENSORS[..], &["--stream", "experts", "--ram-budget", "8MiB"]].concat();
    let rest = sweep(&out, &[&q2], &streamed);
    assert!(rest.status.success(), "{}", stderr(&rest));
    assert_eq!(steps(&lines(&out)), steps(&all), "bit by bit, streamed or not");
    assert_eq!(stdout(&rest), stdout(&whole));

    // Only the same sweep can resume.
    let other = [&TENSORS[..], &["--group", "layer"]].concat();
    let error = failure(&sweep(&out, &[&q2], &other), 1);
    assert!(error.contains("s.jsonl") && error.contains("choice of tensors"), "{error}");
}

#[test]
fn what_cannot_be_swept() {
    let dir = TempDir::new().unwrap();
    let (model, out) = (bundled(), dir.path().join("s.jsonl"));
    let cases: [(&[&str], i32, &str); 7] = [
        (&[], 2, "no donor"),
        (&["--type", "q9"], 2, "q4_K"),
        (&["--type", "q2_K"], 1, "already q4_K"),
        (&["--donor", "/nonexistent.gguf"], 1, "/nonexistent.gguf"),
        (&["--donor", path(&model), "--tensor", "nothing"], 1, "`nothing`"),
        (&["--donor", path(&model), "--tensor", "("], 2, "--tensor"),
        (&["--donor", path(&model), "--donor", path(&model)], 2, "two donors"),
    ];
    for (more, code, named) in cases {
        let error = failure(&sweep(&out, &[], more), code);
        assert!(error.contains(named), "{more:?}: {error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{more:?}");
    }
    // A size that no mix fits: refused after the steps, which are kept.
    let q2 = donor(&dir, "q2_K");
    let tight = [&TENSORS[..], &["--budget", "1MiB"]].concat();
    let output = sweep(&out, &[&q2], &tight);
    let error = failure(&output, 1);
    assert!(
        error.contains("smallest mix") && stderr(&output).contains("hint: use --budget"),
        "{}",
        stderr(&output)
    );
    assert_eq!(lines(&out).iter().filter(|line| line["kind"] == "step").count(), 4);
}
