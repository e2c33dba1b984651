//! Command lines of llama-bench and llama-quantize, as they are.

use crate::common::{bundled, failure, json, run, stderr, stdout};
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use terrace_testkit::{Spec, WeightType};

fn bench(line: &str) -> std::process::Output {
    let model = bundled();
    let words = ["bench", "-m", model.to_str().unwrap(), "-t", "1", "-r", "1"].into_iter();
    run(words.chain(line.split_whitespace()))
}

#[test]
fn llama_benchs_tests_are_rows() {
    let output = bench(
        "-p 16,32 -n 4 -ngl 99 -fa 1 -ctk f16 -mmp 1 -nopo 0 -b 512 -ub 256 -o csv --progress --no-warmup --delay 1 \
         --poll 50 -sm layer -mg 0 -ts 0 -embd 0",
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    let head: Vec<&str> = text.lines().next().unwrap().split(',').collect();
    let column = |name: &str| head.iter().position(|known| *known == name).unwrap();
    let rows: Vec<Vec<String>> = text
        .lines()
        .skip(1)
        .map(|line| line.split("\",\"").map(|cell| cell.trim_matches('"').to_owned()).collect())
        .collect();
    let numbers = |row: &Vec<String>| ["n_prompt", "n_gen", "n_depth"].map(|name| row[column(name)].clone());
    let seen: Vec<[String; 3]> = rows.iter().map(numbers).collect();
    let expected = [["16", "0", "0"], ["0", "4", "16"], ["32", "0", "0"], ["0", "4", "32"]];
    assert_eq!(seen, expected.map(|row| row.map(str::to_owned)), "{text}");
    assert!(rows.iter().all(|row| row[column("avg_ts")].parse::<f64>().unwrap() > 0.0), "{text}");
    assert!(rows.iter().all(|row| row[column("n_ubatch")] == "256"), "{text}");
    let said = stderr(&output);
    assert_eq!(said.lines().filter(|line| line.starts_with("note: -p ")).count(), 1, "{said}");
    assert!(said.contains("-p (a run evaluates the prompt and then generates"), "{said}");
}

#[test]
fn a_depth_is_not_measured() {
    let output = bench("-p 8 -n 2 -d 24 -o jsonl");
    let rows: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |row: &Value| ["n_prompt", "n_gen", "n_depth"].map(|name| row[name].as_u64().unwrap());
    assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), [[8, 0, 24], [0, 2, 32]], "{}", stderr(&output));
    // Alone, without a form: Terrace's own table, with a column for what varies.
    let output = bench("-pg 8,2 --vary threads=1,2");
    let text = stdout(&output);
    assert_eq!(text.lines().filter(|line| line.contains("pp8")).count(), 2, "{text}{}", stderr(&output));
    assert!(text.lines().next().unwrap().contains("threads"), "{text}");
}

#[test]
fn models_devices_and_rules_are_measured_in_turn() {
    let model = bundled();
    let line = format!(
        "-p 8 -n 2 -m {} -dev none,auto -ot up_exps=CPU,up_exps=CPU;down=CPU -o jsonl",
        model.display()
    );
    let output = bench(&line);
    let rows: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // A prompt and what follows, of two models, two sets of devices and two sets of rules.
    assert_eq!(rows.len(), 2 * 2 * 2 * 2, "{}", stderr(&output));
    let output = bench(&format!("-p 8 -n 2 -m {}", model.display()));
    let table = stdout(&output);
    assert_eq!(table.lines().filter(|line| line.ends_with(".gguf")).count(), 2, "{table}");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (line, part) in [
        ("-embd 1", "embeddings are not measured"),
        ("-lm none,huge", "must be auto, none, mmap"),
        ("-m second.gguf --baseline", "--baseline measures one model, and 2 are named"),
        ("--vary nonsense=1", "not an option of runs"),
        ("-p 1-4*1 -n 1", "range without an end"),
        ("-o xml", "md, csv, json, jsonl or sql"),
        ("-pg 512", "two numbers"),
    ] {
        let error = failure(&bench(line), 2);
        assert!(error.contains(part), "{line}: {error}");
    }
}

fn float_model(dir: &TempDir) -> std::path::PathBuf {
    let spec = Spec { other_type: WeightType::F16, expert_type: WeightType::F16, ..Spec::default() };
    terrace_testkit::write(&spec, dir.path().join("in.gguf")).unwrap()
}

fn types(file: &Path) -> Vec<(String, String)> {
    let model = terrace_ggml::gguf::read(file).unwrap();
    model.tensors.into_iter().map(|tensor| (tensor.name, tensor.ty.name)).collect()
}

#[test]
fn llama_quantizes_command_lines_write_what_they_say() {
    let dir = TempDir::new().unwrap();
    let model = float_model(&dir);
    let rules = dir.path().join("types.txt");
    fs::write(&rules, "attn_k=q5_0 attn_v=q5_1\nnothing=q8_0\n").unwrap();
    let output = run([
        "quantize",
        "--allow-requantize",
        "--token-embedding-type",
        "q8_0",
        "--output-tensor-type",
        "q5_0",
        "--tensor-type",
        "attn_q=q4_1",
        "--tensor-type-file",
        rules.to_str().unwrap(),
        "--override-kv",
        "general.name=str:pasted",
        "--keep-split",
        "--max-buffer-size",
        "100",
        model.to_str().unwrap(),
        "q4_0",
        "1",
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("--keep-split (one file is written"), "{}", stderr(&output));
    // As llama-quantize names it.
    let out = dir.path().join("ggml-model-Q4_0.gguf");
    let types = types(&out);
    let of = |part: &str| &types.iter().find(|(name, _)| name.contains(part)).unwrap().1;
    assert_eq!((of("token_embd").as_str(), of("attn_q").as_str()), ("q8_0", "q4_1"));
    assert_eq!((of("attn_k").as_str(), of("attn_v").as_str()), ("q5_0", "q5_1"));
    if let Some((_, head)) = types.iter().find(|(name, _)| name == "output.weight") {
        assert_eq!(head, "q5_0");
    }
    assert_eq!(terrace_ggml::gguf::read(&out).unwrap().str("general.name"), Some("pasted"));

    let sizes = |args: &[&str]| json(&run(["quantize", "--json"].iter().chain(args)))["bytes"].clone();
    let model = model.to_str().unwrap();
    let whole = sizes(&["--dry-run", model, "q4_0", "2"]);
    assert_eq!(whole, sizes(&["--dry-run", model, "2"]), "2 is llama.cpp's number of Q4_0");
    assert!(sizes(&["--dry-run", "--leave-output-tensor", model, "q4_0"]).as_u64() >= whole.as_u64());
    let refused = run(["quantize", "--prune-layers", "1,2", model, "q4_0"]);
    assert!(failure(&refused, 2).contains("without these layers"), "{}", stderr(&refused));
    let idle = run(["quantize", "--include-weights", "attn", model, "q4_0"]);
    assert!(failure(&idle, 2).contains("--imatrix"), "{}", stderr(&idle));
}
