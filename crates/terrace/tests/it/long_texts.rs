//! Texts that are long, or whose tokens are hard to find, end no program and are refused early.

use crate::common::{bundled, failure, run};
use crate::server::Server;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use terrace_testkit::{Arch, Spec, thorough, write, write_edited};

const KINDS: [&str; 4] = ["a", " ", "-", "7"];
const LENGTHS: [usize; 2] = [16 << 10, 1 << 20];

/// Names of pre-tokenizers that match with `std::regex`, which recurses for each character.
const QUICK: &[&str] = &["deepseek-v3"];
const FULL: &[&str] = &[
    "deepseek-v3",
    "default",
    "gpt-4o",
    "tekken",
    "falcon",
    "hunyuan",
    "bailingmoe",
    "exaone-moe",
    "superbpe",
    "qwen2",
    "llama-bpe",
    "deepseek-llm",
    "chameleon",
    "kimi-k2",
    "afmoe",
    "laguna",
    "minicpm5",
    "viking",
    "bloom",
    "glm4",
];

fn with_pre_tokenizer(dir: &TempDir, name: &str) -> PathBuf {
    let model = dir.path().join("model.gguf");
    write_edited(&bundled(), &model, &[("tokenizer.ggml.pre", name)]).unwrap();
    model
}

#[test]
fn long_runs_end_no_server() {
    for name in thorough(QUICK, FULL) {
        let dir = TempDir::new().unwrap();
        let server = Server::start(&with_pre_tokenizer(&dir, name), ["--ctx", "512"]);
        for kind in KINDS {
            for len in LENGTHS {
                let reply = server.post("/tokenize", &json!({"content": kind.repeat(len)}));
                if reply.status == 200 {
                    let tokens = reply.ok()["tokens"].as_array().unwrap().len();
                    assert!((1..=len).contains(&tokens), "{name}: {len} of {kind:?}: {tokens}");
                } else {
                    let message = reply.error(400)["message"].to_string();
                    assert!(message.contains("a run of"), "{name}: {len} of {kind:?}: {message}");
                }
            }
        }
        assert_eq!(server.get("/health").status, 200, "{name}");
    }
}

/// A pre-tokenizer that does not fit the bundled model's vocabulary: llama.cpp asserts that there are no two.
#[test]
fn failed_assertions_end_no_server() {
    let dir = TempDir::new().unwrap();
    let server = Server::start(&with_pre_tokenizer(&dir, "whitespace"), ["--ctx", "512"]);
    for _ in 0..3 {
        let message =
            server.post("/tokenize", &json!({"content": "In  the"})).error(400)["message"].to_string();
        assert!(message.contains("assertion"), "{message}");
        server.post("/completion", &json!({"prompt": "In  the", "n_predict": 1})).error(400);
        assert_eq!(server.post("/tokenize", &json!({"content": "In"})).status, 200);
    }
    let error = refusal(&with_pre_tokenizer(&dir, "whitespace"), "In  the");
    assert!(error.contains("assertion"), "{error}");
}

/// The error of `run -f` with this text.
#[track_caller]
fn refusal(model: &Path, text: &str) -> String {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("text");
    fs::write(&file, text).unwrap();
    let words = ["run".as_ref(), model, "-f".as_ref(), &file, "-n".as_ref(), "1".as_ref()];
    failure(&run(words.iter().chain(&["--ctx".as_ref(), Path::new("512")])), 1)
}

#[test]
fn run_refuses_long_runs() {
    for name in thorough(QUICK, FULL) {
        let dir = TempDir::new().unwrap();
        let model = with_pre_tokenizer(&dir, name);
        for kind in thorough(&KINDS[2..3], &KINDS[..]) {
            for len in LENGTHS {
                let error = refusal(&model, &kind.repeat(len));
                assert!(error.contains("token") || error.contains("a run of"), "{name}: {error}");
            }
        }
    }
}

#[test]
fn texts_beyond_the_context_are_not_tokenised() {
    let error = refusal(&bundled(), &"words and words ".repeat(100_000));
    assert!(error.contains("the prompt of 1600000 bytes has at least"), "{error}");
    let server = Server::start(&bundled(), ["--ctx", "512"]);
    let text = "words and words ".repeat(100_000);
    let bodies = [
        ("/v1/completions", json!({"prompt": text})),
        ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": text}]})),
    ];
    for (path, body) in bodies {
        let error = server.post(path, &body).error(400);
        assert_eq!(error["code"], "context_length_exceeded", "{path}: {error}");
        assert!(error["message"].as_str().unwrap().contains("at least"), "{path}: {error}");
    }
}

/// Special tokens without end, which llama.cpp alone would look for from the start of the text each.
#[test]
fn many_special_tokens_are_tokenised() {
    let dir = TempDir::new().unwrap();
    let model = write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf")).unwrap();
    let server = Server::start(&model, ["--ctx", "512"]);
    let many = |count: usize| server.post("/tokenize", &json!({"content": "x<|im_end|>".repeat(count)})).ok();
    let [few, all] = [2, 100_000].map(|count| many(count)["tokens"].as_array().unwrap().clone());
    assert_eq!(few.len(), 4);
    assert_eq!(all.len(), 200_000);
    assert!(all.chunks(4).all(|tokens| tokens == few));
    // A prompt is counted while it is tokenised.
    let error = server.post("/completion", &json!({"prompt": "<|im_end|> ".repeat(100_000)})).error(400);
    assert_eq!(error["code"], "context_length_exceeded", "{error}");
}
