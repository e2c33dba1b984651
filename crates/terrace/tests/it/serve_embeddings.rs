//! `/v1/embeddings` and its kin: forms, errors, and that they go beside answers.

use crate::common::bundled;
use crate::server::{Server, golden};
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};
use terrace_testkit::released::Released;
use terrace_testkit::{Arch, Spec};

const TEXT: &str = "In the beginning God created the heaven and the earth.";
const NONE: [&str; 0] = [];

fn dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn ranker(dir: &Path) -> PathBuf {
    let model = dir.join("ranker.gguf");
    Released::new("bert", false).unwrap().write(&model, 1, None).unwrap();
    model
}

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
}

fn length(values: &[f32]) -> f32 {
    values.iter().map(|value| value * value).sum::<f32>().sqrt()
}

/// The floats of a text in base 64.
fn decoded(text: &str) -> Vec<f32> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = text.bytes().filter(|&letter| letter != b'=').flat_map(|letter| {
        let value = LETTERS.iter().position(|&other| other == letter).unwrap();
        (0..6).rev().map(move |bit| (value >> bit) & 1)
    });
    let bits: Vec<usize> = bits.collect();
    let bytes: Vec<u8> =
        bits.chunks_exact(8).map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | *bit as u8)).collect();
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

#[test]
fn all_forms_have_the_same_numbers() {
    let server = Server::start(&bundled(), NONE);
    let whole = server.post("/v1/embeddings", &json!({"model": "any", "input": TEXT, "user": "me"}));
    assert_eq!(whole.header("x-terrace-epoch"), "0");
    let whole = whole.ok();
    assert_eq!((&whole["object"], &whole["data"][0]["object"]), (&json!("list"), &json!("embedding")));
    let values = numbers(&whole["data"][0]["embedding"]);
    assert!((length(&values) - 1.0).abs() < 1e-5);
    let tokens =
        server.post("/tokenize", &json!({"content": TEXT, "add_special": true})).ok()["tokens"].clone();
    let count = tokens.as_array().unwrap().len();
    assert_eq!(whole["usage"], json!({"prompt_tokens": count, "total_tokens": count}));
    assert_eq!(server.get("/props").ok()["terrace"]["embedding"]["dimensions"], values.len());

    // Several texts, as strings, as tokens and as both.
    let mut mixed = tokens.as_array().unwrap().clone();
    mixed.push(json!(" And"));
    let several = json!({"input": [TEXT, tokens, {"prompt_string": TEXT}, "Amen", mixed]});
    let several = server.post("/v1/embeddings", &several).ok();
    let all: Vec<Vec<f32>> =
        several["data"].as_array().unwrap().iter().map(|item| numbers(&item["embedding"])).collect();
    assert_eq!((&all[0], &all[1], &all[2]), (&values, &values, &values));
    assert!(all[3] != values && all[4] != values);
    assert_eq!(several["data"][4]["index"], 4);

    let base64 = json!({"input": tokens, "encoding_format": "base64"});
    let base64 = server.post("/v1/embeddings", &base64).ok();
    assert_eq!(decoded(base64["data"][0]["embedding"].as_str().unwrap()), values);

    let short = server.post("/v1/embeddings", &json!({"input": TEXT, "dimensions": 8})).ok();
    let short = numbers(&short["data"][0]["embedding"]);
    assert_eq!(short.len(), 8);
    assert!((length(&short) - 1.0).abs() < 1e-5);
    assert!((short[0] / short[1] - values[0] / values[1]).abs() < 1e-3);

    // llama-server's form.
    for path in ["/embedding", "/embeddings"] {
        let native = server.post(path, &json!({"content": [TEXT, "Amen"]})).ok();
        assert_eq!(numbers(&native[0]["embedding"][0]), values);
        assert_eq!((&native[1]["index"], numbers(&native[1]["embedding"][0])), (&json!(1), all[3].clone()));
    }
    let raw = server.post("/embedding", &json!({"content": TEXT, "embd_normalize": -1})).ok();
    let raw = numbers(&raw[0]["embedding"][0]);
    assert!((raw[0] / length(&raw) - values[0]).abs() < 1e-5 && (length(&raw) - 1.0).abs() > 1e-3);

    // Ollama's forms.
    let ollama = server.post("/api/embed", &json!({"model": "any", "input": [TEXT, "Amen"]})).ok();
    assert_eq!(numbers(&ollama["embeddings"][0]), values);
    assert_eq!(numbers(&ollama["embeddings"][1]), all[3]);
    assert!(ollama["prompt_eval_count"].as_u64().unwrap() > count as u64);
    let one = server.post("/api/embed", &json!({"input": TEXT, "keep_alive": "5m", "options": {}})).ok();
    assert_eq!(numbers(&one["embeddings"][0]), values);
    assert_eq!(server.post("/api/embed", &json!({"model": "any"})).ok()["embeddings"], json!([]));
    // A text without a token has a vector like the others, so that they keep their places.
    let some = server.post("/api/embed", &json!({"model": "any", "input": [TEXT, ""]})).ok();
    let (first, second) = (numbers(&some["embeddings"][0]), numbers(&some["embeddings"][1]));
    assert_eq!((first.len(), &first[..]), (second.len(), &values[..]));
    let old = server.post("/api/embeddings", &json!({"model": "any", "prompt": TEXT})).ok();
    assert_eq!(numbers(&old["embedding"]), raw);

    assert!(server.metric("terrace_embedded_tokens_total") > 0.0);
    assert!(server.metric("terrace_requests_total{end=\"embedded\"}") >= 8.0);
    // Answers are what they were.
    let asked = json!({"prompt": TEXT, "n_predict": 12, "cache_prompt": false});
    assert_eq!(server.post("/completion", &asked).ok()["content"], golden(TEXT, 12));
}

#[test]
fn poolings_are_those_of_the_option() {
    let of = |pooling: &str, path: &str| {
        let server = Server::start(&bundled(), ["--embeddings", "--pooling", pooling]);
        server.post(path, &json!({"input": TEXT, "embd_normalize": -1}))
    };
    let rows = of("none", "/embedding").ok()[0]["embedding"].clone();
    let rows: Vec<Vec<f32>> = rows.as_array().unwrap().iter().map(numbers).collect();
    let whole = |pooling| numbers(&of(pooling, "/embedding").ok()[0]["embedding"][0]);
    assert_eq!(&whole("last"), rows.last().unwrap());
    assert_eq!(whole("cls"), rows[0]);
    let error = of("none", "/v1/embeddings").error(400);
    assert_eq!(error["message"], "pooling type `none` leaves no embedding of a text as a whole");
}

#[test]
fn stock_has_the_same_numbers() {
    let of = |args: &[&str]| {
        let server = Server::start(&bundled(), args);
        let answer = server.post("/embedding", &json!({"input": [TEXT, TEXT.repeat(30)]})).ok();
        [numbers(&answer[0]["embedding"][0]), numbers(&answer[1]["embedding"][0])]
    };
    let stock = of(&["--pooling", "mean", "--stock"]);
    assert_eq!(of(&["--pooling", "mean", "--stream", "experts"]), stock);
    assert_eq!(of(&["--pooling", "mean", "--embedding", "--stream", "all", "--ram-budget", "12MiB"]), stock);
}

#[test]
fn wrong_requests_are_errors() {
    let server = Server::start(&bundled(), ["--ctx", "64"]);
    for (body, param) in [
        (json!({}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": 7}), "input"),
        (json!({"input": [[]]}), "input"),
        (json!({"input": {"content": "text"}}), "input"),
        (json!({"input": {"content": [{"type": "image_url"}]}}), "input"),
        (json!({"input": TEXT, "encoding_format": "hex"}), "encoding_format"),
        (json!({"input": TEXT, "dimensions": 0}), "dimensions"),
        (json!({"input": TEXT, "dimensions": 100_000}), "dimensions"),
        (json!({"input": [99_999_999]}), "prompt"),
    ] {
        assert_eq!(server.post("/v1/embeddings", &body).error(400)["param"], param, "{body}");
    }
    let long = json!({"input": TEXT.repeat(30)});
    assert_eq!(server.post("/v1/embeddings", &long).error(400)["code"], "context_length_exceeded");
    assert_eq!(server.post("/v1/embeddings", &json!({"input": vec!["a"; 3000]})).status, 400);
    let error = server.post("/api/embed", &json!({"input": TEXT.repeat(30), "truncate": false}));
    assert!(error.status == 400 && error.json()["error"].is_string(), "{}", error.text);
    // Ollama cuts texts by default.
    assert_eq!(server.post("/api/embed", &json!({"input": TEXT.repeat(30)})).ok()["prompt_eval_count"], 64);
    let error = server.post("/rerank", &json!({"query": "a", "documents": ["b"]})).error(501);
    assert_eq!(error["code"], "no_ranking");
}

#[test]
fn documents_are_ranked() {
    let dir = dir();
    let server = Server::start(&ranker(dir.path()), ["--reranking"]);
    let documents = ["the earth", "the heaven and the waters", "God"];
    let asked = json!({"query": "In the beginning", "documents": documents});
    let answer = server.post("/rerank", &asked).ok();
    let results = answer["results"].as_array().unwrap();
    let score = |result: &Value, name: &str| result[name].as_f64().unwrap();
    let mut indices: Vec<u64> = results.iter().map(|result| result["index"].as_u64().unwrap()).collect();
    assert!(
        results
            .windows(2)
            .all(|pair| score(&pair[0], "relevance_score") >= score(&pair[1], "relevance_score"))
    );
    let best = indices[0];
    indices.sort_unstable();
    assert_eq!(indices, [0, 1, 2]);
    assert_eq!(answer["usage"]["prompt_tokens"], answer["usage"]["total_tokens"]);
    for path in ["/v1/rerank", "/reranking", "/v1/reranking"] {
        assert_eq!(server.post(path, &asked).ok()["results"], answer["results"], "{path}");
    }
    let top =
        json!({"query": "In the beginning", "documents": documents, "top_n": 1, "return_documents": true});
    let top = server.post("/rerank", &top).ok();
    assert_eq!(top["results"].as_array().unwrap().len(), 1);
    assert_eq!(top["results"][0]["document"]["text"], documents[best as usize]);
    let plain = json!({"query": "In the beginning", "texts": documents, "return_text": true});
    let plain = server.post("/rerank", &plain).ok();
    assert_eq!(plain[0]["index"], best);
    assert_eq!(plain[0]["text"], documents[best as usize]);
    assert_eq!(plain[0]["score"], results[0]["relevance_score"]);
    for wrong in [
        json!({"documents": ["a"]}),
        json!({"query": "a"}),
        json!({"query": "a", "documents": []}),
        json!({"query": "a", "documents": [1]}),
        json!({"query": 1, "documents": ["a"]}),
    ] {
        server.post("/rerank", &wrong).error(400);
    }
    // It has scores, and no embeddings; and it does not generate.
    server.post("/v1/embeddings", &json!({"input": "a"})).error(400);
    let error = server.post("/completion", &json!({"prompt": "a"})).error(501);
    assert_eq!(error["code"], "not_generative");
}

#[test]
fn a_model_that_only_embeds_needs_no_option() {
    let dir = dir();
    let server = Server::start(&ranker(dir.path()), NONE);
    let answer = server.post("/v1/embeddings", &json!({"input": [TEXT, "Amen"]})).ok();
    assert!((length(&numbers(&answer["data"][0]["embedding"])) - 1.0).abs() < 1e-5);
    assert_eq!(server.post("/api/show", &json!({})).ok()["capabilities"], json!(["embedding"]));
    let error = server.post("/v1/chat/completions", &json!({"messages": [{"role": "user", "content": "a"}]}));
    assert!(error.status == 400 || error.status == 501, "{}", error.text);
}

/// An answer goes on while texts are embedded, and texts of a client that has left are dropped.
#[test]
fn texts_go_beside_answers() {
    let dir = dir();
    let model = terrace_testkit::write(&Spec::new(Arch::Qwen3Moe), dir.path().join("endless.gguf")).unwrap();
    let server = Server::start(&model, ["--ctx", "8192", "--stream", "none"]);
    let mut answer = server.begin("/completion", &json!({"prompt": TEXT, "n_predict": 3000, "stream": true}));
    server.wait_for(|server| server.processing() == 1);
    let embedded = server.post("/v1/embeddings", &json!({"input": [TEXT, "Amen"]})).ok();
    assert_eq!(embedded["data"].as_array().unwrap().len(), 2);
    assert_eq!(server.processing(), 1, "the answer goes on");
    let many = vec![TEXT.repeat(10); 1000];
    let left = server.begin("/v1/embeddings", &json!({"input": many}));
    let waiting = |server: &Server| server.metric("terrace_embeddings_waiting");
    server.wait_for(|server| waiting(server) == 1.0);
    drop(left);
    server.wait_for(|server| waiting(server) == 0.0);
    assert_eq!(server.processing(), 1);
    let mut some = [0; 64];
    answer.read_exact(&mut some).unwrap();
}
