//! `/infill`: gaps in texts.

use crate::common::bundled;
use crate::server::Server;
use serde_json::{Value, json};
use std::path::PathBuf;
use terrace_testkit::{Edit, write_edited};

/// The bundled model, with some of its tokens as those for gaps.
fn with_gaps(dir: &tempfile::TempDir, tokens: &[(&str, u32)]) -> PathBuf {
    let model = dir.path().join("gaps.gguf");
    let keys: Vec<(String, u32)> =
        tokens.iter().map(|(name, token)| (format!("tokenizer.ggml.fim_{name}_token_id"), *token)).collect();
    let edits: Vec<(&str, Edit<'_>)> =
        keys.iter().map(|(key, token)| (key.as_str(), Edit::Number(*token))).collect();
    write_edited(&bundled(), &model, &edits).unwrap();
    model
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// The answer to a prompt of `/infill` is that of `/completion` to the tokens which it stands for.
#[track_caller]
fn assert_prompt(server: &Server, infill: &Value, tokens: &[Value]) {
    let mut infill = infill.clone();
    infill["n_predict"] = 12.into();
    infill["cache_prompt"] = false.into();
    let filled = server.post("/infill", &infill).ok();
    let tokens: Vec<Value> = tokens
        .iter()
        .flat_map(|part| part.as_array().map_or_else(|| vec![part.clone()], Vec::clone))
        .collect();
    let plain = json!({"prompt": tokens, "n_predict": 12, "cache_prompt": false});
    let plain = server.post("/completion", &plain).ok();
    assert_eq!(filled["content"], plain["content"]);
    assert_eq!(filled["tokens_evaluated"], plain["tokens_evaluated"]);
    assert_eq!(filled["tokens_evaluated"].as_u64().unwrap() as usize, tokens.len());
}

#[test]
fn gaps_are_described_by_the_models_tokens() {
    let dir = dir();
    let model = with_gaps(&dir, &[("pre", 300), ("suf", 301), ("mid", 302)]);
    let server = Server::start(&model, ["--ctx", "256"]);
    let tokens = |text: &str| {
        server.post("/tokenize", &json!({"content": text, "add_special": false})).ok()["tokens"].clone()
    };
    let begin = server.post("/tokenize", &json!({"content": "", "add_special": true})).ok()["tokens"].clone();
    let (before, after) = ("In the beginning God", " the heaven and the earth.");
    assert_prompt(
        &server,
        &json!({"input_prefix": before, "input_suffix": after}),
        &[begin.clone(), json!(300), tokens(before), json!(301), tokens(after), json!(302)],
    );
    let other = json!({"text": "And the earth was without form", "filename": "b.txt", "time": 1});
    assert_prompt(
        &server,
        &json!({"input_prefix": before, "input_suffix": after, "prompt": " cre", "input_extra": [other]}),
        &[
            tokens("\n\n--- snippet ---\n\n"),
            tokens("And the earth was without form"),
            begin,
            json!(300),
            tokens(before),
            tokens(" cre"),
            json!(301),
            tokens(after),
            json!(302),
        ],
    );
    // Whatever the size of the texts, the prompt leaves room for the answer.
    let long = "and God saw that it was good ".repeat(200);
    let asked = json!({
        "input_prefix": long, "input_suffix": long, "input_extra": [{"text": long}], "n_predict": 8
    });
    let filled = server.post("/infill", &asked).ok();
    assert_eq!(filled["tokens_predicted"], 8);
    let evaluated = filled["tokens_evaluated"].as_u64().unwrap();
    assert!((200..=256).contains(&evaluated), "{filled}");
    let streamed = json!({"input_prefix": before, "input_suffix": after, "n_predict": 4, "stream": true});
    let streamed = server.post("/infill", &streamed);
    assert!(streamed.status == 200 && streamed.text.contains(r#""stop":true"#), "{}", streamed.text);

    // What editors send.
    let editor = json!({
        "id_slot": 0, "input_prefix": before, "input_suffix": after, "input_extra": [], "prompt": "",
        "n_predict": 16, "n_indent": 2, "top_k": 40, "top_p": 0.9, "stream": false,
        "samplers": ["top_k", "top_p", "infill"], "cache_prompt": true, "t_max_prompt_ms": 500,
        "t_max_predict_ms": 60_000, "response_fields": ["content", "timings/prompt_n", "truncated"],
    });
    let answer = server.post("/infill", &editor).ok();
    let names: Vec<&String> = answer.as_object().unwrap().keys().collect();
    assert_eq!(names, ["content", "timings/prompt_n", "truncated"]);

    for (wrong, param) in [
        (json!({"input_suffix": after}), "input_prefix"),
        (json!({"input_prefix": before}), "input_suffix"),
        (json!({"input_prefix": before, "input_suffix": {}}), "input_suffix"),
        (json!({"input_prefix": before, "input_suffix": "", "prompt": [1]}), "prompt"),
        (json!({"input_prefix": before, "input_suffix": "", "input_extra": {}}), "input_extra"),
        (json!({"input_prefix": before, "input_suffix": "", "input_extra": [{}]}), "input_extra[0]"),
        (
            json!({"input_prefix": "", "input_suffix": "", "input_extra": [{"text": "", "filename": 1}]}),
            "input_extra[0].filename",
        ),
        (json!({"input_prefix": [99999], "input_suffix": ""}), "prompt"),
    ] {
        assert_eq!(server.post("/infill", &wrong).error(400)["param"], param, "{wrong}");
    }
}

#[test]
fn repositories_are_described_where_the_model_knows_them() {
    let dir = dir();
    let marks = [("pre", 300), ("suf", 301), ("mid", 302), ("rep", 303), ("sep", 304)];
    let server = Server::start(&with_gaps(&dir, &marks), ["--ctx", "256"]);
    let tokens = |text: &str| {
        server.post("/tokenize", &json!({"content": text, "add_special": false})).ok()["tokens"].clone()
    };
    let begin = server.post("/tokenize", &json!({"content": "", "add_special": true})).ok()["tokens"].clone();
    assert_prompt(
        &server,
        &json!({"input_prefix": "a", "input_suffix": "b", "input_extra": [{"text": "c"}]}),
        &[
            json!(303),
            tokens("myproject\n"),
            json!(304),
            tokens("tmp\n"),
            tokens("c"),
            json!(304),
            tokens("filename\n"),
            begin,
            json!(300),
            tokens("a"),
            json!(301),
            tokens("b"),
            json!(302),
        ],
    );
}

#[test]
fn a_model_without_tokens_for_gaps_says_so() {
    let dir = dir();
    let server = Server::start(&with_gaps(&dir, &[("pre", 300)]), ["--ctx", "64"]);
    let error = server.post("/infill", &json!({"input_prefix": "a", "input_suffix": "b"})).error(501);
    assert_eq!(error["code"], "no_fim_tokens");
    let message = "infill is not supported by this model: it has no tokens for suffix, middle";
    assert_eq!(error["message"], message);
}
