//! The record of a model, from one run to the next.

use crate::common::{bundled, error_line, json, stderr, terrace};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

const PROMPT: &str = "And it came to pass in those days, that there went out a decree";

/// A run with room for a third of the experts, whose cache directory is `cache`.
fn generate(cache: &Path, more: &[&str]) -> Output {
    let mut command = terrace();
    command.env("XDG_CACHE_HOME", cache).env_remove("TERRACE_WARM_START");
    command.args(["run", bundled().to_str().unwrap(), "-p", PROMPT, "-n", "16", "--temp", "0", "--json"]);
    if !more.contains(&"--stream") && !more.contains(&"--stock") {
        command.args(["--stream", "experts", "--ram-budget", "8MiB"]);
    }
    command.args(more).output().unwrap()
}

/// The records.
fn kept(cache: &Path) -> Vec<PathBuf> {
    let Ok(files) = fs::read_dir(cache.join("terrace/records")) else { return Vec::new() };
    files.map(|file| file.unwrap().path()).collect()
}

fn filled(report: &Value) -> u64 {
    report["store"]["ahead"]["filled_bytes"].as_u64().unwrap()
}

fn quiet(output: &Output) -> Value {
    assert_eq!(stderr(output), "");
    json(output)
}

/// Sum of the uses of a layer's experts, in tokens.
fn uses(path: &Path, layer: usize) -> f64 {
    let file: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let counts = file["experts"][layer]["counts"].as_array().unwrap();
    counts.iter().map(|count| count.as_f64().unwrap()).sum::<f64>() / 64.0
}

#[test]
fn the_second_run_reads_ahead_what_the_first_used() {
    let cache = TempDir::new().unwrap();
    let first = quiet(&generate(cache.path(), &[]));
    assert_eq!(filled(&first), 0);
    let files = kept(cache.path());
    assert_eq!(files.len(), 1, "{files:?}");
    assert!(files[0].file_name().unwrap().to_str().unwrap().starts_with("tiny-moe-Q4_K-"), "{files:?}");
    // Four of 32 experts per token; the last token was not evaluated.
    let tokens = first["prompt_tokens"].as_f64().unwrap() + 15.0;
    assert_eq!(uses(&files[0], 0), 4.0 * tokens);

    let second = quiet(&generate(cache.path(), &[]));
    assert!(filled(&second) > 0, "{second}");
    assert_eq!(second["tokens"], first["tokens"]);
    assert_eq!(kept(cache.path()), files);
    // Old uses count half, rounded down per expert.
    assert!((uses(&files[0], 0) - 6.0 * tokens).abs() < 1.0);

    // A model of the same name at another path is the same model; one of another name is not.
    let copy = cache.path().join("tiny-moe-Q4_K.gguf");
    fs::copy(bundled(), &copy).unwrap();
    let moved = |model: &Path| {
        let mut command = terrace();
        command.env("XDG_CACHE_HOME", cache.path()).env("TERRACE_WARM_START", "on");
        command.args([
            "run",
            model.to_str().unwrap(),
            "-p",
            PROMPT,
            "-n",
            "2",
            "--json",
            "--stream",
            "experts",
        ]);
        quiet(&command.args(["--ram-budget", "8MiB"]).output().unwrap())
    };
    assert!(filled(&moved(&copy)) > 0);
    let other = copy.with_file_name("other.gguf");
    fs::rename(&copy, &other).unwrap();
    assert_eq!(filled(&moved(&other)), 0);
    assert_eq!(kept(cache.path()).len(), 2);
}

#[test]
fn off_keeps_and_reads_nothing() {
    let cache = TempDir::new().unwrap();
    quiet(&generate(cache.path(), &["--warm-start", "off"]));
    quiet(&generate(cache.path(), &["--stock"]));
    quiet(&generate(cache.path(), &["--stream", "none", "--warm-start", "off"]));
    assert!(kept(cache.path()).is_empty());
    let on = quiet(&generate(cache.path(), &["--warm-start", "on"]));
    let before = fs::read(&kept(cache.path())[0]).unwrap();
    let off = quiet(&generate(cache.path(), &["--warm-start", "off"]));
    assert_eq!((filled(&off), &off["tokens"]), (0, &on["tokens"]));
    // A trace is meant to be replayed from an empty cache, so nothing is read ahead.
    let trace = cache.path().join("a.trace");
    let mut command = terrace();
    command.env("XDG_CACHE_HOME", cache.path()).env("TERRACE_WARM_START", "on");
    command.args(["trace", "record", bundled().to_str().unwrap(), "-p", PROMPT, "-n", "2", "--json"]);
    command.args(["--stream", "experts", "--ram-budget", "8MiB", "-o", trace.to_str().unwrap()]);
    assert_eq!(filled(&json(&command.output().unwrap())), 0);
    assert_eq!(fs::read(&kept(cache.path())[0]).unwrap(), before);
}

#[test]
fn a_run_that_fails_has_counted_all_the_same() {
    let cache = TempDir::new().unwrap();
    let failed = generate(cache.path(), &["--inject-fault", "eio@400", "--lookahead", "off"]);
    assert_eq!(failed.status.code(), Some(1), "{}", stderr(&failed));
    error_line(&stderr(&failed));
    assert!(uses(&kept(cache.path())[0], 0) > 0.0);
}

#[test]
fn what_is_wrong_with_the_cache_is_one_warning() {
    let cache = TempDir::new().unwrap();
    let first = quiet(&generate(cache.path(), &[]));
    let file = &kept(cache.path())[0];
    fs::write(file, "{\"format\":\"other\"}").unwrap();
    let warned = |output: &Output, part: &str| {
        let text = stderr(output);
        assert!(text.lines().count() == 1 && text.contains("WARN") && text.contains(part), "{text}");
        let report = json(output);
        assert_eq!((filled(&report), &report["tokens"]), (0, &first["tokens"]));
    };
    warned(&generate(cache.path(), &[]), file.to_str().unwrap());
    assert!(filled(&quiet(&generate(cache.path(), &[]))) > 0, "it was written anew");

    // No directory can be created there.
    let blocked = TempDir::new().unwrap();
    fs::create_dir(blocked.path().join("terrace")).unwrap();
    fs::write(blocked.path().join("terrace/records"), "").unwrap();
    warned(&generate(blocked.path(), &[]), "cannot save the model's record");
}

/// What `terrace plan` expects: the lengths, and their source.
fn expected(cache: &Path, more: &[&str]) -> (u64, u64, Value, String) {
    let mut command = terrace();
    command.env("XDG_CACHE_HOME", cache).env_remove("TERRACE_WARM_START");
    let output = command.args(["plan", bundled().to_str().unwrap(), "--json"]).args(more).output().unwrap();
    let estimate = json(&output)["estimate"].clone();
    let tokens = |key: &str| estimate[key].as_u64().unwrap();
    (tokens("prompt_tokens"), tokens("output_tokens"), estimate["expected"].clone(), stderr(&output))
}

#[test]
fn plans_expect_the_lengths_of_earlier_runs() {
    let cache = TempDir::new().unwrap();
    let at = |more: &[&str]| expected(cache.path(), more);
    let assumed = (512, 256, Value::from("assumed"), String::new());
    assert_eq!(at(&[]), assumed);
    let first = quiet(&generate(cache.path(), &[]));
    let earlier = |runs| serde_json::json!({"earlier": {"runs": runs}});
    // 16 or so tokens of prompt, rounded to a power of two or the middle between two.
    let prompt = first["prompt_tokens"].as_u64().unwrap();
    let (rounded, output, source, said) = at(&[]);
    assert_eq!((output, source, said), (16, earlier(1), String::new()));
    assert!(rounded.abs_diff(prompt) * 4 <= prompt, "{rounded}, {prompt}");
    let second = quiet(&generate(cache.path(), &[]));
    let placed = &second["plan"]["placement"]["estimate"];
    assert_eq!((&placed["expected"], placed["output_tokens"].as_u64()), (&earlier(1), Some(16)));
    assert_eq!(at(&[]), (rounded, 16, earlier(2), String::new()));
    // What is stated counts, and what is switched off does not.
    assert_eq!(at(&["--expect-prompt", "100"]), (100, 256, Value::from("stated"), String::new()));
    assert_eq!(at(&["--warm-start", "off"]), assumed);
    // A damaged file is ignored with a line, and written again.
    let dir = cache.path().join("terrace/records");
    let file = fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    fs::write(&file, "{\"format\":\"terrace-model-record\"").unwrap();
    let (prompt, output, source, said) = at(&[]);
    assert_eq!((prompt, output, source), (512, 256, Value::from("assumed")));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("the file will be rewritten"), "{said}");
    generate(cache.path(), &[]);
    assert_eq!(at(&[]).2, earlier(1));
}
