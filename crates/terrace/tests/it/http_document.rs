//! The OpenAPI document: every field of a request that it names is one that the server reads.

use crate::common::bundled;
use crate::server::Server;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use terrace_testkit::released::Released;
use terrace_testkit::{Edit, write_edited};

/// The schema of a request's body.
pub fn body<'a>(document: &'a Value, path: &str, method: &str) -> Option<&'a Value> {
    let operation = &document["paths"][path][method];
    let schema = operation.pointer("/requestBody/content/application~1json/schema")?;
    Some(resolve(document, schema))
}

/// Follows a reference, and leaves out that a value may be null.
pub fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#')).unwrap();
        return resolve(document, target);
    }
    match schema["anyOf"].as_array().map(Vec::as_slice) {
        Some([one, null]) if null["type"] == "null" => resolve(document, one),
        _ => schema,
    }
}

/// The JSON types of a schema's values. Empty: all.
fn types(document: &Value, schema: &Value) -> BTreeSet<String> {
    let schema = resolve(document, schema);
    match (&schema["type"], &schema["anyOf"]) {
        (Value::String(one), _) => BTreeSet::from([one.clone()]),
        (Value::Array(several), _) => several.iter().map(|one| one.as_str().unwrap().to_owned()).collect(),
        (_, Value::Array(any)) => any.iter().flat_map(|schema| types(document, schema)).collect(),
        _ => BTreeSet::new(),
    }
}

/// A value of a type that the field does not take.
fn wrong(types: &BTreeSet<String>) -> Value {
    if !types.contains("integer") && !types.contains("number") {
        return json!(5);
    }
    json!({"no": 1})
}

/// A request that is answered, for each endpoint with fields.
fn base(path: &str) -> Option<Value> {
    let turns = json!([{"role": "user", "content": "a"}]);
    Some(match path {
        "/completion" | "/completions" => json!({"prompt": "a", "n_predict": 1}),
        "/infill" => json!({"input_prefix": "a", "input_suffix": "b", "n_predict": 1}),
        "/v1/completions" => json!({"prompt": "a", "max_tokens": 1}),
        "/v1/chat/completions"
        | "/chat/completions"
        | "/v1/chat/completions/input_tokens"
        | "/chat/completions/input_tokens" => json!({"messages": turns, "max_tokens": 1, "logprobs": true}),
        "/v1/responses" | "/responses" | "/v1/responses/input_tokens" | "/responses/input_tokens" => {
            json!({"input": "a", "max_output_tokens": 1})
        }
        "/v1/messages" | "/v1/messages/count_tokens" => json!({"messages": turns, "max_tokens": 1}),
        "/api/generate" => json!({"prompt": "a", "stream": false, "options": {"num_predict": 1}}),
        "/api/chat" => json!({"messages": turns, "stream": false, "options": {"num_predict": 1}}),
        "/v1/embeddings" | "/api/embed" => json!({"input": "a"}),
        "/embedding" | "/embeddings" => json!({"content": "a"}),
        "/api/embeddings" => json!({"prompt": "a"}),
        "/rerank" | "/reranking" | "/v1/rerank" | "/v1/reranking" => {
            json!({"query": "a", "documents": ["b"]})
        }
        "/apply-template" => json!({"messages": turns}),
        "/tokenize" => json!({"content": "a"}),
        "/detokenize" => json!({"tokens": [1]}),
        "/props" => json!({}),
        "/v1/memory" => json!({"slots": 1 << 30}),
        "/moe-layer-perf" => json!({"mode": "full"}),
        "/models/load" | "/models/unload" => json!({"model": "tiny-moe-Q4_K"}),
        _ => return None,
    })
}

/// Endpoints whose bodies are not read here, or not field by field: those that the server was not started
/// for, those that take a list or any object, and learn files, of which most fields are for readers.
const OTHERS: [&str; 6] =
    ["/api/pull", "/api/show", "/lora-adapters", "/moe-hot-cache", "/slots/{id}", "/v1/batches"];

/// Fields without effect: `path field`, or the field in all requests.
const NO_EFFECT: [&str; 2] = ["model", "user"];

/// Sends each documented field with a value of a wrong type: the error has to name it.
fn walk(server: &Server, document: &Value, paths: &BTreeSet<&str>) -> usize {
    let mut count = 0;
    for path in paths {
        let schema = body(document, path, "post").unwrap();
        for (name, field) in schema["properties"].as_object().unwrap() {
            let mut names = vec![(name.clone(), field)];
            if let Some(inner) =
                resolve(document, field)["properties"].as_object().filter(|_| name == "options")
            {
                names.extend(inner.iter().map(|(inner, field)| (format!("{name}/{inner}"), field)));
            }
            for (place, field) in names {
                let types = types(document, field);
                let value = wrong(&types);
                let mut body = base(path).unwrap();
                // The form of Text Embeddings Inference has its own fields.
                if place == "return_text" {
                    body = json!({"query": "a", "texts": ["b"]});
                }
                match place.split_once('/') {
                    Some((outer, inner)) => body[outer][inner] = value.clone(),
                    None => body[&place] = value.clone(),
                }
                let reply = server.post(path, &body);
                let last = place.rsplit('/').next().unwrap();
                let ignored = types.is_empty() || NO_EFFECT.contains(&last) && reply.status == 200;
                assert!(!reply.text.contains("unknown"), "{path} {place}: {}", reply.text);
                assert!(
                    ignored || (400..500).contains(&reply.status) && reply.text.contains(last),
                    "{path} {place} = {value}: {} {}",
                    reply.status,
                    reply.text
                );
                count += 1;
            }
        }
    }
    count
}

#[test]
fn every_documented_field_is_read() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let model = dir.path().join("gaps.gguf");
    let gaps = ["fim_pre_token_id", "fim_suf_token_id", "fim_mid_token_id"];
    let names = gaps.map(|name| format!("tokenizer.ggml.{name}"));
    let edits: Vec<_> = names.iter().zip(300..).map(|(name, id)| (name.as_str(), Edit::Number(id))).collect();
    write_edited(&bundled(), &model, &edits).unwrap();
    let server = Server::start(&model, ["--ctx", "256", "--parallel", "2", "--props"]);
    let document = server.get("/openapi.json").ok();
    let paths = document["paths"].as_object().unwrap().keys().map(String::as_str);
    let with_fields = paths.filter(|path| body(&document, path, "post").is_some() && !OTHERS.contains(path));
    let (ranking, others): (BTreeSet<&str>, BTreeSet<&str>) =
        with_fields.partition(|path| path.contains("rerank"));
    // The only model stays loaded, and nothing of it streams.
    for path in others.iter().filter(|path| !path.starts_with("/models/") && **path != "/v1/memory") {
        server.post(path, &base(path).unwrap_or_else(|| panic!("{path} has no request here"))).ok();
    }
    assert!(walk(&server, &document, &others) > 800);

    let model = dir.path().join("ranker.gguf");
    Released::new("bert", false).unwrap().write(&model, 1, None).unwrap();
    let server = Server::start(&model, ["--reranking"]);
    assert_eq!(ranking.len(), 4);
    assert!(walk(&server, &document, &ranking) > 20);
}

#[test]
fn an_unknown_field_is_told_from_a_documented_one() {
    let server = Server::start(&bundled(), ["--ctx", "256", "--strict"]);
    let reply = server.post("/completion", &json!({"prompt": "a", "temprature": 5}));
    assert_eq!(reply.status, 400, "{}", reply.text);
    assert!(reply.text.contains("unknown"), "{}", reply.text);
}
