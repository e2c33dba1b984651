//! `terrace perplexity`, end to end.

use crate::common::{bundled, failure, json, run, stderr, stdout};
use std::path::PathBuf;
use std::process::Output;
use tempfile::TempDir;

fn sample() -> PathBuf {
    bundled().with_file_name("sample.kjv.txt")
}

fn measure(more: &[&str]) -> Output {
    let (model, text) = (bundled(), sample());
    let args = ["perplexity", model.to_str().unwrap(), "-f", text.to_str().unwrap(), "--ctx", "128"];
    run(args.iter().chain(more))
}

#[test]
fn streamed_is_stock_and_both_say_what_they_measured() {
    let stock = json(&measure(&["--chunks", "4", "--json", "--stock"]));
    let streamed =
        json(&measure(&["--chunks", "4", "--json", "--stream", "experts", "--ram-budget", "4MiB"]));
    for key in ["perplexity", "error", "running", "chunks", "context", "scored", "tokens"] {
        assert_eq!(stock[key], streamed[key], "{key}");
    }
    assert_eq!((stock["chunks"].as_u64(), stock["context"].as_u64()), (Some(4), Some(128)));
    assert_eq!((stock["scored"].as_u64(), stock["tokens"].as_u64()), (Some(4 * 63), Some(512)));
    assert_eq!(stock["running"].as_array().unwrap().len(), 4);
    assert_eq!(stock["running"][3], stock["perplexity"]);
    for key in ["seconds", "tokens_per_second", "peak_rss_bytes"] {
        assert!(streamed[key].as_f64().unwrap() > 0.0, "{key}");
    }
    assert_eq!(streamed["mode"], "expert-streaming");
    assert!(streamed["model"].as_str().unwrap().ends_with("tiny-moe-Q4_K.gguf"));
    assert!(streamed["store"]["bytes_read"].as_u64().unwrap() > 4 << 20, "it streamed");
    // A trained model on a text of its domain: far from the 2048 of guessing.
    let perplexity = streamed["perplexity"].as_f64().unwrap();
    assert!((5.0..40.0).contains(&perplexity), "{perplexity}");

    let printed = |more: &[&str]| {
        let args = ["--chunks", "4", "--stream", "experts", "--ram-budget", "4MiB"];
        let output = measure(&[&args, more].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output).to_owned()
    };
    let error = stock["error"].as_f64().unwrap();
    let last = format!("Final estimate: PPL = {perplexity:.4} +/- {error:.5}");
    let running = stock["running"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap());
    let (mut lines, mut line) = (String::new(), String::new());
    for (i, value) in (1..).zip(running) {
        lines += &format!("[{i}] {value:.4}\n");
        line += &format!("[{i}]{value:.4},");
    }
    assert_eq!(printed(&["--format", "lines"]), format!("{lines}{last}\n"));
    // Programs read llama-perplexity's form.
    assert_eq!(printed(&[]), format!("{line}\n{last}\n"));
    assert_eq!(printed(&["--format", "llama"]), format!("{line}\n{last}\n"));
}

/// `llama-perplexity -c 256 -b 256 --chunks 20` of the pinned release, built beside it, printed
/// `PPL = 18.1527 +/- 0.92486` for this file and text on a machine with AVX-512, as Terrace did;
/// other kernels round differently.
#[test]
fn it_is_the_figure_of_llama_perplexity() {
    let (model, text) = (bundled(), sample());
    let args = ["--ctx", "256", "--chunks", "20", "--json", "--ram-budget", "8MiB"];
    let report =
        json(&run(["perplexity", model.to_str().unwrap(), "-f", text.to_str().unwrap()].iter().chain(&args)));
    let near = |key: &str, expected: f64| {
        let value = report[key].as_f64().unwrap();
        assert!((value / expected - 1.0).abs() < 2e-3, "{key}: {value}");
    };
    near("perplexity", 18.1527);
    near("error", 0.92486);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let dir = TempDir::new().unwrap();
    let short = dir.path().join("short.txt");
    std::fs::write(&short, "In the beginning God created the heaven and the earth.").unwrap();
    let model = bundled();
    let model = model.to_str().unwrap();
    let output = run(["perplexity", model, "-f", short.to_str().unwrap()]);
    let error = failure(&output, 1);
    assert!(error.contains("tokens") && error.contains("1024"), "{error}");
    assert!(stderr(&output).contains("hint: give a longer text"), "{}", stderr(&output));

    let missing = dir.path().join("missing.txt");
    assert!(failure(&run(["perplexity", model, "-f", missing.to_str().unwrap()]), 1).contains("missing.txt"));
    assert!(failure(&run(["perplexity", model]), 2).contains("--file"));
    let tiny = run(["perplexity", model, "-f", short.to_str().unwrap(), "--ctx", "3"]);
    assert!(failure(&tiny, 1).contains("too small"), "{}", stderr(&tiny));
}

#[test]
fn a_base_is_kept_and_compared_with() {
    let dir = TempDir::new().unwrap();
    let base = dir.path().join("base.kld");
    let base = base.to_str().unwrap();
    let kept = json(&measure(&["--chunks", "3", "--json", "--save-logits", base]));
    assert_eq!(kept["logits"], base);
    // Header, tokens, and a row of 2 bytes per entry for each scored position.
    let vocab = 2048;
    assert_eq!(std::fs::metadata(base).unwrap().len(), 20 + 3 * (128 * 4 + 63 * (8 + 2 * vocab)));

    // Streamed, with the text and the chunks of the base.
    let (model, text) = (bundled(), sample());
    let (model, text) = (model.to_str().unwrap(), text.to_str().unwrap());
    let compared = json(&run(["perplexity", model, "--kld", base, "--json", "--ram-budget", "8MiB"]));
    assert_eq!(compared["perplexity"]["value"], kept["perplexity"]);
    assert_eq!(compared["perplexity"]["error"], kept["error"]);
    assert_eq!((compared["chunks"].as_u64(), compared["scored"].as_u64()), (Some(3), Some(189)));
    assert_eq!(compared["running"].as_array().unwrap().len(), 3);
    assert_eq!(compared["running"][2]["kld"], compared["kld"]);
    assert!(compared["kld"]["value"].as_f64().unwrap().abs() < 1e-5, "{}", compared["kld"]);
    assert!(compared["same_top"]["value"].as_f64().unwrap() > 0.98);
    assert!(compared["kld_percentiles"]["maximum"].is_number());

    // Another model, with llama-perplexity's lines.
    let args = ["perplexity", model, "-f", text, "--kld", base, "--kv-type", "q4_0", "--chunks", "2"];
    let lines = run(args);
    assert!(lines.status.success(), "{}", stderr(&lines));
    let lines = stdout(&lines);
    let starts =
        ["chunk ", "   1 ", "   2 ", "Mean PPL(Q)  ", "Mean PPL(base)", "Cor(", "Mean ln(PPL(Q)/PPL(base))"];
    let more =
        ["Mean    KLD:", "Maximum KLD:", "99.9%   KLD:", "Median  KLD:", "Minimum KLD:", "Mean    Δp:"];
    let last = ["75.0%   Δp:", "25.0%   Δp:", "RMS Δp    :", "Same top p:"];
    for start in starts.iter().chain(&more).chain(&last) {
        assert_eq!(lines.lines().filter(|line| line.starts_with(start)).count(), 1, "{start}: {lines}");
    }

    // Files that do not belong together are refused before the model is loaded.
    let refused = |args: &[&str], expected: &str| {
        let no_model = ["perplexity", "no-such-model.gguf", "--kld"];
        let output = run(no_model.iter().chain(args));
        let error = failure(&output, 1);
        assert!(error.contains(expected), "{error}");
        assert!(stderr(&output).contains("hint: "), "{}", stderr(&output));
    };
    refused(&[base, "--ctx", "256"], "made with chunks of 128 tokens, not 256");
    refused(&[model], "not a file of log probabilities");
    let cut = dir.path().join("cut");
    std::fs::write(&cut, &std::fs::read(base).unwrap()[..5000]).unwrap();
    refused(
        &[cut.to_str().unwrap()],
        "5000 bytes, but 3 chunks of 128 tokens over 2048 vocabulary entries take",
    );
    let other = dir.path().join("other.txt");
    std::fs::write(&other, &std::fs::read(text).unwrap()[1..]).unwrap();
    let output = run(["perplexity", model, "--kld", base, "-f", other.to_str().unwrap()]);
    assert!(failure(&output, 1).contains("made from a different text: token "), "{}", stderr(&output));
    let output = run(["perplexity", model, "-f", text, "--save-logits", "/no/such/folder"]);
    assert!(failure(&output, 1).contains("/no/such/folder"), "{}", stderr(&output));
}

/// Verses cut in two, each with the endings of others, in the format of llama-perplexity's
/// `--hellaswag`.
fn tasks(count: usize) -> String {
    let text = std::fs::read_to_string(sample()).unwrap();
    let verses: Vec<(String, String)> = text
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|words| words.len() > 14)
        .map(|words| {
            let (begin, end) = words.split_at(words.len() / 2);
            (begin.join(" "), end.join(" "))
        })
        .collect();
    let task = |i: usize| {
        let ending = |e: usize| verses[if e == i % 4 { i } else { 100 + 7 * i + e }].1.as_str();
        format!("{}\n{}\n{}\n", verses[i].0, i % 4, [0, 1, 2, 3].map(ending).join("\n"))
    };
    (0..count).map(task).collect()
}

#[test]
fn tasks_are_solved_and_bad_ones_refused() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("tasks.txt");
    std::fs::write(&file, tasks(30)).unwrap();
    let model = bundled();
    let base = ["perplexity", model.to_str().unwrap(), "--hellaswag", "-f", file.to_str().unwrap()];
    let solved =
        json(&run(base.iter().chain(&["--hellaswag-tasks", "20", "--json", "--ram-budget", "8MiB"])));
    let right = solved["correct"].as_u64().unwrap();
    assert_eq!(solved["tasks"], 20);
    assert!(right >= 8, "a trained model does better than guessing: {right} of 20");
    assert_eq!(solved["accuracy"].as_f64().unwrap(), right as f64 / 20.0);
    assert_eq!(solved["running"].as_array().unwrap().len(), 20);
    let answers = solved["answers"].as_array().unwrap();
    let solved_answers = answers.iter().filter(|answer| answer["chosen"] == answer["gold"]).count();
    assert_eq!((answers.len(), solved_answers as u64), (20, right));

    let lines = run(base.iter().chain(&["--hellaswag-tasks", "3", "--parallel", "12"]));
    assert!(lines.status.success(), "{}", stderr(&lines));
    let lines: Vec<&str> = stdout(&lines).lines().collect();
    assert_eq!((lines.len(), lines[0]), (4, "task\tacc_norm\t95% confidence interval"));
    assert!(lines[1].starts_with("1\t") && lines[3].starts_with("3\t"), "{lines:?}");

    let refused = |text: &str, expected: &str| {
        std::fs::write(&file, text).unwrap();
        let error = failure(&run(base), 1);
        assert!(error.contains("tasks.txt") && error.contains(expected), "{error}");
    };
    refused("a\nb\n", "2 lines, but each task takes 6");
    refused("a\n7\nb\nc\nd\ne\n", "line 2: `7` is not the number");
    std::fs::write(&file, tasks(1).replace("and", &"and ".repeat(400))).unwrap();
    assert!(failure(&run(base.iter().chain(&["--ctx", "256"])), 1).contains("the task at line 1 has"));
    let usage = failure(&run(base.iter().chain(&["--kld", "x"])), 2);
    assert!(usage.contains("--hellaswag") && usage.contains("--kld"), "{usage}");
}
