//! Models with a table of learned positions: no context, and no request, is longer than the table.

use crate::common::{failure, run, stderr};
use crate::server::Server;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use terrace_testkit::released::Released;

/// Rows of the tables of these models.
const ROWS: usize = 128;

fn model(dir: &Path, arch: &str) -> PathBuf {
    let model = dir.join(format!("{arch}.gguf"));
    Released::new(arch, false).unwrap().write(&model, 1, None).unwrap();
    model
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn tokens(count: usize) -> Value {
    (0..count).map(|number| number % 50 + 1).collect()
}

#[test]
fn slots_are_no_longer_than_the_table() {
    let dir = dir();
    let model = model(dir.path(), "gpt2");
    // Above the table; and below, where llama.cpp rounds up to 256.
    for (context, capacity, most, warned) in [("1024", ROWS, ROWS, true), ("64", ROWS, 64, false)] {
        let server = Server::start(&model, ["--ctx", context, "--parallel", "2"]);
        let slots = server.get("/slots").ok();
        assert_eq!(slots[0]["n_ctx"].as_u64(), Some(capacity as u64), "{slots}");
        for slot in [0, 1] {
            let ask = |prompt: usize, predict: i64| {
                let body = json!({"prompt": tokens(prompt), "n_predict": predict, "id_slot": slot, "ignore_eos": true});
                server.post("/completion", &body)
            };
            let error = ask(capacity + 1, 1).error(400);
            assert_eq!(error["code"], "context_length_exceeded", "{error}");
            assert_eq!(ask(capacity, 1).ok()["tokens_predicted"], 1);
            // The answer ends where the table does.
            let answer = ask(capacity - 5, -1).ok();
            assert_eq!(answer["truncated"], true, "{answer}");
        }
        let embed = |count: usize| server.post("/v1/embeddings", &json!({"input": tokens(count)}));
        embed(most).ok();
        assert_eq!(embed(most + 1).error(400)["code"], "context_length_exceeded");
        let text = "a".repeat(600);
        for (path, body) in [
            ("/v1/completions", json!({"prompt": text, "max_tokens": 1})),
            ("/embedding", json!({"content": text})),
            ("/api/embed", json!({"input": text, "truncate": false})),
        ] {
            assert_eq!(server.post(path, &body).status, 400, "{path}");
        }
        server.post("/api/embed", &json!({"input": text})).ok();
        server.signal("-TERM");
        let (status, log) = server.ended();
        assert!(status.success(), "{log}");
        let warning = log.lines().find(|line| line.contains("position_embd.weight"));
        assert_eq!(warning.is_some(), warned, "{log}");
        if let Some(line) = warning {
            assert!(line.contains("1024") && line.contains("128 rows"), "{line}");
        }
    }
}

#[test]
fn programs_read_no_further_than_the_table() {
    let dir = dir();
    let gpt2 = model(dir.path(), "gpt2");
    let path = gpt2.to_str().unwrap();
    let text = "word ".repeat(400);
    let file = dir.path().join("text.txt");
    std::fs::write(&file, &text).unwrap();
    let error = failure(&run(["run", path, "--ctx", "1024", "-n", "2", "-p", &text]), 1);
    assert!(error.contains("128"), "{error}");
    for stock in [&[][..], &["--stock"]] {
        let args = ["run", path, "--ctx", "1024", "-p", "a", "-n", "600", "--temp", "0"];
        let output = run(args.iter().chain(stock));
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let file = file.to_str().unwrap();
    for args in [&["perplexity", path, "-f", file, "--ctx", "512"][..], &["perplexity", path, "-f", file]] {
        let output = run(args);
        assert!(output.status.code().is_some_and(|code| code < 3), "{:?} {}", output.status, stderr(&output));
    }
    // A draft model with a shorter table than the context.
    let args = ["run", path, "--ctx", "1024", "-p", "a", "-n", "600", "--temp", "0", "--draft-model", path];
    let output = run(args);
    assert!(output.status.code().is_some_and(|code| code < 3), "{:?} {}", output.status, stderr(&output));
}
