//! Other spellings of options, with the real binary: llama.cpp's, and Terrace's old ones.

use crate::common::{bundled, failure, json, run, stderr, stdout, terrace};
use std::fs;

/// Runs the bundled model for a few tokens.
fn generate(more: &[&str]) -> serde_json::Value {
    let model = bundled();
    let args = ["run", model.to_str().unwrap(), "-p", "In the beginning", "--temp", "0", "--json"];
    json(&run(args.iter().chain(more)))
}

#[test]
fn theirs_and_ours_do_the_same() {
    let model = bundled();
    let ours = generate(&["-n", "8", "--ctx", "512"]);
    let theirs = [
        "run",
        "-m",
        model.to_str().unwrap(),
        "-p",
        "In the beginning",
        "--temperature=0",
        "--json",
        "--predict",
        "8",
        "-c",
        "512",
        "-fa",
        "on",
        "-ngl",
        "auto",
        "--no-warmup",
    ];
    let theirs = json(&run(theirs));
    assert_eq!(theirs["tokens"], ours["tokens"]);
    assert_eq!(theirs["plan"]["context"], ours["plan"]["context"]);
}

#[test]
fn keys_and_values_have_types_of_their_own() {
    for types in [["q8_0", "f16"], ["f16", "q4_0"]] {
        let options = ["-n", "8", "-ctk", types[0], "-ctv", types[1]];
        let streamed = ["--stream", "experts", "--ram-budget", "4MiB"];
        let ours = generate(&[&options[..], &streamed].concat());
        let stock = generate(&[&options[..], &["--stock"]].concat());
        assert_eq!(ours["tokens"], stock["tokens"], "{types:?}");
        assert_eq!(ours["plan"]["kv_type"], format!("{}/{}", types[0], types[1]));
    }
}

#[test]
fn what_is_not_to_be_had_is_refused_with_the_reason() {
    for (words, reason) in [
        (vec!["run", "--mlock"], "--mlock: locked memory"),
        (vec!["run", "-ts", "3,1"], "-ts: the plan gives each accelerator what fits"),
        (vec!["run", "-np", "2"], "-np: this command has no such option"),
        (vec!["run", "--override-kv", "a.b=int:1"], "--override-kv: Terrace plans from the file's header"),
        (vec!["run", "--flash-attn=off"], "--flash-attn: attention is always fused"),
        (vec!["run", "-hf", "a/b:Q4_K_M"], "--hf-repo: a file cannot be chosen by its type"),
        (vec!["serve", "-np", "2", "-c", "512"], "--ctx-size with --parallel is ambiguous"),
        (vec!["run", "--mmap", "--stream", "experts", "x.gguf", "-p", "x"], "--mmap leaves all weights"),
    ] {
        let output = run(&words);
        let error = failure(&output, 2);
        assert!(error.contains(reason), "{words:?}: {error}");
        assert!(stderr(&output).contains("hint: "), "{words:?}");
    }
}

#[test]
fn what_nobody_knows_comes_with_the_nearest() {
    let output = run(["run", "--ctx-sized", "5"]);
    let error = failure(&output, 2);
    assert!(error.contains("--ctx-sized"), "{error}");
    assert!(stderr(&output).contains("--ctx"), "{}", stderr(&output));
}

#[test]
fn help_has_our_own_names_only() {
    for command in ["run", "serve", "bench", "plan", "perplexity", "optimize"] {
        let output = run([command, "--help"]);
        let help = stdout(&output);
        for theirs in [
            "--manage",
            "--ctx-size",
            "--batch-size",
            "-ngl",
            "-ctk",
            "--gpu-layers",
            "--hotswap",
            "--profile",
            "TERRACE_MANAGE",
        ] {
            assert!(!help.contains(theirs), "{command}: {theirs}");
        }
    }
    let all = run(["--help"]);
    assert!(stdout(&all).contains("  machine ") && !stdout(&all).contains("  profile "));
}

#[test]
fn variables_and_keys_have_their_old_names_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    fs::write(&file, "manage = \"everything\"\n").unwrap();
    let error = failure(&run(["run", "x", "--config", file.to_str().unwrap()]), 2);
    assert!(
        error.contains("key `manage`") && error.contains("must be experts, ffn, all, none or auto"),
        "{error}"
    );
    let output = terrace().args(["run", "x"]).env("TERRACE_MANAGE", "everything").output().unwrap();
    assert!(failure(&output, 2).contains("everything"), "{}", stderr(&output));
    let mut both = terrace();
    both.args(["run", "/none", "-p", "x"]).env("TERRACE_MANAGE", "everything").env("TERRACE_STREAM", "none");
    let output = both.output().unwrap();
    assert!(failure(&output, 1).contains("/none"), "{}", stderr(&output));
}
