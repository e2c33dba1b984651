//! Answers in pieces: whatever bytes the model writes, the pieces of every API can be parsed, and
//! add up to the whole answer.

#![no_main]

use axum::body::Body;
use axum::http::Request;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use std::sync::LazyLock;
use terrace_fuzz::{Scratch, Service};

static SERVICE: LazyLock<Service> = LazyLock::new(|| Service::start(&Scratch::new()));

/// Paths, and where their text is: in a whole answer, and in a piece.
const APIS: [(&str, &str, &str); 5] = [
    ("/completion", "/content", "/content"),
    ("/v1/completions", "/choices/0/text", "/choices/0/text"),
    ("/v1/chat/completions", "/choices/0/message/content", "/choices/0/delta/content"),
    ("/api/generate", "/response", "/response"),
    ("/api/chat", "/message/content", "/message/content"),
];

fuzz_target!(
    init: {
        if terrace_engine::enter_chat_worker().is_some() {
            std::process::exit(0);
        }
    },
    |data: &[u8]| {
        let [api, seed, tokens, rest @ ..] = data else { return };
        let (path, whole, piece) = APIS[usize::from(*api) % APIS.len()];
        let (stop, prompt) = rest.split_at(rest.len().min(usize::from(api / 8)));
        let (stop, prompt) = (String::from_utf8_lossy(stop), String::from_utf8_lossy(prompt));
        let text = |stream: bool| {
            forget();
            let body = body(path, &prompt, &stop, (*seed).into(), (*tokens % 24).into(), stream);
            let request = Request::post(path).body(Body::from(body.to_string())).expect("a request");
            let answer = SERVICE.ask(request);
            let (objects, _) = answer.objects().expect("JSON");
            if !answer.status.is_success() {
                assert!(answer.status.is_client_error(), "{path}: {} {objects:?}", answer.status);
                return None;
            }
            let at = if stream { piece } else { whole };
            Some(objects.iter().filter_map(|object| object.pointer(at)?.as_str()).collect::<String>())
        };
        assert_eq!(text(true), text(false), "{path}");
    }
);

/// Leaves the context as after no request: what is kept of an earlier one is computed in other
/// batches, which round differently.
fn forget() {
    let body = json!({"prompt": "x", "n_predict": 0, "cache_prompt": false});
    let request = Request::post("/completion").body(Body::from(body.to_string())).expect("a request");
    assert!(SERVICE.ask(request).status.is_success());
}

fn body(path: &str, prompt: &str, stop: &str, seed: u64, tokens: u64, stream: bool) -> Value {
    let mut options = json!({"temperature": 2.0, "seed": seed});
    if !stop.is_empty() {
        options["stop"] = stop.into();
    }
    let ollama = path.starts_with("/api/");
    options[if ollama { "num_predict" } else { "max_tokens" }] = tokens.into();
    if path == "/completion" {
        options["n_predict"] = options["max_tokens"].take();
    }
    let mut body = if ollama { json!({"options": options}) } else { options };
    match path.contains("chat") {
        true => body["messages"] = json!([{"role": "user", "content": prompt}]),
        false => body["prompt"] = prompt.into(),
    }
    body["stream"] = stream.into();
    body
}
