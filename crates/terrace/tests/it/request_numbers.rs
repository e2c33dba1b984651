//! All numbers in requests: which values are accepted, and that no value takes much memory or ends the
//! server.

use crate::common::bundled;
use crate::http_document::{body, resolve};
use crate::server::Server;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use terrace_testkit::released::Released;
use terrace_testkit::{AdapterSpec, Edit, write_adapter, write_edited};

const I31: f64 = i32::MAX as f64;
const U32: f64 = u32::MAX as f64;
/// Stands for a field that accepts all integers of 64 bits, signed or not.
const WIDE: f64 = 1.9e19;

/// Whether values between whole numbers are accepted.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Whole,
    Any,
}
use Kind::{Any, Whole};

/// The groups of endpoints that have a field.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    /// All that answer prompts; in Ollama's API within `options`.
    Answers,
    /// One endpoint.
    One(&'static str),
}
use Of::{Answers, One};

/// Field (steps of its path separated by `/`), endpoints, kind, least and most accepted value, and what the
/// largest accepted value can cost.
type Row = (&'static str, Of, Kind, f64, f64, &'static str);

const NUMBERS: [Row; 65] = [
    ("temperature", Answers, Any, 0.0, 100.0, "nothing"),
    ("top_k", Answers, Whole, -1.0, I31, "at most the vocabulary is sorted"),
    ("top_p", Answers, Any, 0.0, 1.0, "nothing"),
    ("min_p", Answers, Any, 0.0, 1.0, "nothing"),
    ("typical_p", Answers, Any, 0.0, 1.0, "nothing"),
    ("typ_p", Answers, Any, 0.0, 1.0, "nothing"),
    ("typical", Answers, Any, 0.0, 1.0, "nothing"),
    ("top_n_sigma", Answers, Any, -1.0, 1e6, "nothing"),
    ("nsigma", Answers, Any, -1.0, 1e6, "nothing"),
    ("dynatemp_range", Answers, Any, 0.0, 100.0, "nothing"),
    ("dynatemp_exponent", Answers, Any, 0.0, 100.0, "nothing"),
    ("xtc_probability", Answers, Any, 0.0, 1.0, "nothing"),
    ("xtc_threshold", Answers, Any, 0.0, 1.0, "nothing"),
    ("min_keep", Answers, Whole, 0.0, I31, "nothing: a lower bound of what is left"),
    ("repeat_last_n", Answers, Whole, -1.0, I31, "64 bytes for each token of the context"),
    ("repeat_penalty", Answers, Any, 1e-6, 1e6, "nothing"),
    ("repetition_penalty", Answers, Any, 1e-6, 1e6, "nothing"),
    ("rep_pen", Answers, Any, 1e-6, 1e6, "nothing"),
    ("frequency_penalty", Answers, Any, -1e9, 1e9, "nothing"),
    ("presence_penalty", Answers, Any, -1e9, 1e9, "nothing"),
    ("dry_multiplier", Answers, Any, 0.0, 1e6, "nothing"),
    ("dry_base", Answers, Any, 0.0, 1e6, "nothing"),
    ("dry_allowed_length", Answers, Whole, 0.0, I31, "nothing"),
    ("dry_penalty_last_n", Answers, Whole, -1.0, I31, "64 bytes for each token of the context"),
    ("mirostat", Answers, Whole, 0.0, 2.0, "nothing"),
    ("mirostat_tau", Answers, Any, 0.0, 1e6, "nothing"),
    ("mirostat_eta", Answers, Any, 0.0, 1e6, "nothing"),
    ("adaptive_target", Answers, Any, -1.0, 1.0, "a probability for each token of the vocabulary"),
    ("adaptive_decay", Answers, Any, 0.0, 0.99, "nothing"),
    ("min_tokens", Answers, Whole, 0.0, U32, "tokens up to the context"),
    ("seed", Answers, Whole, -WIDE, WIDE, "nothing"),
    ("lora/0/id", Answers, Whole, 0.0, 0.0, "nothing"),
    ("lora/0/scale", Answers, Any, -1e6, 1e6, "nothing"),
    ("n_predict", One("/completion"), Whole, -2.0, U32, "tokens up to the context"),
    ("max_tokens", One("/completion"), Whole, -2.0, U32, "tokens up to the context"),
    ("max_new_tokens", One("/completion"), Whole, -2.0, U32, "tokens up to the context"),
    ("n_probs", One("/completion"), Whole, 0.0, 100.0, "7 kB for each generated token"),
    ("n", One("/completion"), Whole, 1.0, 64.0, "as many answers: 256 MiB before they are generated"),
    ("n_cmpl", One("/completion"), Whole, 1.0, 64.0, "as many answers: 256 MiB before they are generated"),
    ("n_indent", One("/completion"), Whole, -1.0, I31, "nothing"),
    ("t_max_predict_ms", One("/completion"), Whole, -1.0, I31, "nothing"),
    ("id_slot", One("/completion"), Whole, -1.0, 1.0, "nothing"),
    ("n_predict", One("/infill"), Whole, -2.0, U32, "less room for other texts"),
    ("n_probs", One("/infill"), Whole, 0.0, 100.0, "7 kB for each generated token"),
    ("logprobs", One("/v1/completions"), Whole, 0.0, 100.0, "7 kB for each token"),
    ("max_tokens", One("/v1/completions"), Whole, -2.0, U32, "tokens up to the context"),
    ("n", One("/v1/completions"), Whole, 1.0, 64.0, "as many answers"),
    ("id_slot", One("/v1/completions"), Whole, -1.0, 1.0, "nothing"),
    ("max_completion_tokens", One("/v1/chat/completions"), Whole, -2.0, U32, "tokens up to the context"),
    ("max_tokens", One("/v1/chat/completions"), Whole, -2.0, U32, "tokens up to the context"),
    ("top_logprobs", One("/v1/chat/completions"), Whole, 0.0, 100.0, "7 kB for each generated token"),
    ("n", One("/v1/chat/completions"), Whole, 1.0, 64.0, "as many answers"),
    ("thinking_budget_tokens", One("/v1/chat/completions"), Whole, -1.0, I31, "nothing"),
    ("reasoning_budget_tokens", One("/v1/chat/completions"), Whole, -1.0, I31, "nothing"),
    ("max_output_tokens", One("/v1/responses"), Whole, -2.0, U32, "tokens up to the context"),
    ("top_logprobs", One("/v1/responses"), Whole, 0.0, 100.0, "7 kB for each generated token"),
    ("max_tool_calls", One("/v1/responses"), Whole, 1.0, U32, "nothing"),
    ("max_tokens", One("/v1/messages"), Whole, -2.0, U32, "tokens up to the context"),
    ("thinking/budget_tokens", One("/v1/messages"), Whole, 0.0, I31, "nothing"),
    ("options/num_predict", One("/api/generate"), Whole, -2.0, U32, "tokens up to the context"),
    ("options/num_ctx", One("/api/generate"), Whole, 1.0, U32, "nothing: the context is the server's"),
    ("dimensions", One("/v1/embeddings"), Whole, 1.0, EMBD, "nothing: the vector is cut"),
    ("dimensions", One("/api/embed"), Whole, 1.0, EMBD, "nothing: the vector is cut"),
    ("embd_normalize", One("/embedding"), Whole, -1.0, I31, "nothing"),
    ("top_n", One("/rerank"), Whole, 0.0, U32, "nothing: a list is cut"),
];

/// The bundled model's width.
const EMBD: f64 = 256.0;

/// Values that no implementation expects, beside those at the ends of a range.
fn extremes() -> Vec<Value> {
    let mut all = vec![
        json!(0),
        json!(-1),
        json!(i32::MAX),
        json!(i64::from(i32::MAX) + 1),
        json!(i32::MIN),
        json!(u32::MAX),
        json!(1_u64 << 53),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1e308),
        json!(-1e308),
        json!(5e-324),
        json!("NaN"),
        json!("1"),
        json!([1]),
        json!({}),
    ];
    // No JSON numbers: the body is refused as a whole.
    all.push(Value::Null);
    all
}

/// The request to an endpoint to which fields are added.
fn base(endpoint: &str) -> Value {
    let turns = json!([{"role": "user", "content": "a"}]);
    match endpoint {
        "/completion" => json!({"prompt": "a", "n_predict": 1, "repeat_penalty": 1.1, "dry_multiplier": 0.8}),
        "/infill" => json!({"input_prefix": "a", "input_suffix": "b", "n_predict": 1}),
        "/v1/completions" => json!({"prompt": "a", "max_tokens": 1}),
        "/v1/chat/completions" => json!({"messages": turns, "max_tokens": 1, "logprobs": true}),
        "/v1/responses" => json!({"input": "a", "max_output_tokens": 1}),
        "/v1/messages" => json!({"messages": turns, "max_tokens": 1, "thinking": {"type": "enabled"}}),
        "/api/generate" => json!({"prompt": "a", "stream": false, "options": {"num_predict": 1}}),
        "/v1/embeddings" | "/api/embed" => json!({"input": "a"}),
        "/embedding" => json!({"content": "a"}),
        "/rerank" => json!({"query": "a", "documents": ["b"]}),
        "/props" => json!({}),
        other => panic!("{other}"),
    }
}

/// A body with a value at a path, and the name by which errors call that place.
fn with(endpoint: &str, path: &str, value: &Value) -> (Value, String) {
    let mut body = base(endpoint);
    if path.starts_with("lora/") {
        body["lora"] = json!([{"id": 0}]);
    }
    let pointer = format!("/{path}");
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    let parent = body.pointer_mut(parent).unwrap();
    // Of two names for one thing, only that of this row is there.
    if last.starts_with("max_") || last == "n_predict" {
        parent.as_object_mut().unwrap().retain(|name, _| !name.starts_with("max_") && name != "n_predict");
    }
    parent[last] = value.clone();
    let place = path.replace("/0/", "[0].").replace('/', ".");
    (body, place)
}

/// Whether a row's field accepts a value. `None`: it is left out, as all but one may be.
fn accepts((name, _, kind, least, most, _): &Row, value: &Value) -> Option<bool> {
    let Value::Number(number) = value else {
        return if value.is_null() && *name != "lora/0/id" { None } else { Some(false) };
    };
    let float = number.as_f64().unwrap();
    Some((least..=most).contains(&&float) && (*kind == Any || float.fract() == 0.0 && float.abs() < 2e19))
}

/// A model with tokens for gaps, and an adapter.
fn model(dir: &Path) -> (PathBuf, PathBuf) {
    let model = dir.join("gaps.gguf");
    let edits = [
        ("tokenizer.ggml.fim_pre_token_id", Edit::Number(300)),
        ("tokenizer.ggml.fim_suf_token_id", Edit::Number(301)),
        ("tokenizer.ggml.fim_mid_token_id", Edit::Number(302)),
    ];
    write_edited(&bundled(), &model, &edits).unwrap();
    let spec = AdapterSpec { weights: &["blk.1.attn_q.weight"], ..AdapterSpec::default() };
    let adapter = write_adapter(&spec, &bundled(), dir.join("adapter.gguf")).unwrap();
    (model, adapter)
}

/// How much a request with any numbers may add to the server's memory: kept conversations and allocators
/// included.
const MOST_GROWTH: u64 = 96 << 20;

fn start(dir: &Path) -> Server {
    let (model, adapter) = model(dir);
    let adapter = adapter.to_str().unwrap();
    Server::start(
        &model,
        ["--ctx", "256", "--parallel", "2", "--props", "--lora", adapter, "--cache-ram", "0"],
    )
}

/// Sends a request for each value at a row's field, and checks that what the row accepts is answered, and
/// everything else refused by the field's name.
fn walk(server: &Server, endpoint: &str, path: &str, row: &Row, values: &[Value]) {
    for value in values {
        let (body, place) = with(endpoint, path, value);
        let reply = server.post(endpoint, &body);
        match accepts(row, value) {
            Some(false) => {
                assert_eq!(reply.status, 400, "{endpoint} {place} = {value}: {}", reply.text);
                // Anthropic's errors have no field, only words.
                let named = [place.clone(), value.to_string()].iter().any(|name| reply.text.contains(name));
                assert!(named, "{endpoint} {place} = {value}: {}", reply.text);
            }
            _ => assert_eq!(reply.status, 200, "{endpoint} {place} = {value}: {}", reply.text),
        }
    }
}

/// The ends of a row's range, and values beyond.
fn ends(row: &Row) -> Vec<Value> {
    let (_, _, kind, least, most, _) = *row;
    let number = |n: f64| match kind {
        Whole if n.abs() < 9e15 => json!(n as i64),
        _ => json!(n),
    };
    match kind {
        _ if most >= WIDE => Vec::new(),
        Whole => {
            vec![number(least), number(most), number(least - 1.0), number(most + 1.0), json!(least + 0.5)]
        }
        Any => vec![number(least), number(most), number(least - least.abs() / 2.0 - 1.0), number(most * 2.0)],
    }
}

#[test]
fn no_number_in_a_request_takes_much_memory() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = start(dir.path());
    let answers = [
        "/completion",
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/infill",
    ];
    let embeds = ["/v1/embeddings", "/api/embed", "/embedding"];
    for endpoint in answers.iter().chain(&embeds).chain(&["/api/generate"]) {
        server.post(endpoint, &base(endpoint)).ok();
    }
    let before = server.peak_memory();
    let extremes = extremes();
    for row in NUMBERS.iter().filter(|row| row.1 != One("/rerank")) {
        match row.1 {
            One(endpoint) => {
                walk(&server, endpoint, row.0, row, &extremes);
                walk(&server, endpoint, row.0, row, &ends(row));
            }
            Answers => {
                walk(&server, "/completion", row.0, row, &extremes);
                walk(&server, "/completion", row.0, row, &ends(row));
                // One parser reads these fields in all APIs.
                for endpoint in &answers[1..] {
                    walk(&server, endpoint, row.0, row, &[json!(i32::MAX), json!(1e308)]);
                }
                let options = format!("options/{}", row.0);
                if !row.0.starts_with("lora") {
                    walk(&server, "/api/generate", &options, row, &[json!(i32::MAX), json!(1e308)]);
                    walk(&server, "/props", row.0, row, &[json!(i32::MAX), json!(1e308)]);
                }
            }
        }
        let grown = server.peak_memory() - before;
        assert!(grown < MOST_GROWTH, "{} has cost {} MiB", row.0, grown >> 20);
    }
    // As defaults of all requests, too; they are what the last rows have left.
    server.post("/props", &json!({"repeat_last_n": i32::MAX, "dry_penalty_last_n": i32::MAX})).ok();
    for endpoint in answers {
        server.post(endpoint, &base(endpoint)).ok();
    }
    let grown = server.peak_memory() - before;
    assert!(grown < MOST_GROWTH, "{} MiB", grown >> 20);
}

/// Fields that the document leaves out: other names of documented ones, and what is within any object.
const UNDOCUMENTED: [&str; 4] =
    ["max_new_tokens", "n_cmpl", "reasoning_budget_tokens", "thinking/budget_tokens"];
/// Fields whose largest value depends on the server.
const OF_THE_SERVER: [&str; 5] = ["seed", "lora/0/id", "id_slot", "options/num_ctx", "dimensions"];

#[test]
fn the_document_has_these_ranges() {
    let document = Server::start(&bundled(), ["--ctx", "256"]).get("/openapi.json").ok();
    for (path, of, kind, least, most, _) in NUMBERS {
        let endpoints = match of {
            One(endpoint) => vec![endpoint],
            Answers => {
                vec!["/completion", "/v1/completions", "/v1/chat/completions", "/v1/responses", "/infill"]
            }
        };
        for endpoint in endpoints {
            let mut schema = body(&document, endpoint, "post").unwrap();
            for step in path.split('/') {
                schema = match step.parse::<usize>() {
                    Ok(_) => &schema["items"],
                    Err(_) => &schema["properties"][step],
                };
                schema = resolve(&document, schema);
            }
            if UNDOCUMENTED.contains(&path) {
                assert!(schema.is_null(), "{endpoint} {path} is documented");
                continue;
            }
            let name = if kind == Whole { "integer" } else { "number" };
            let types = &schema["type"];
            let one = types.as_str().or_else(|| types.get(0).and_then(Value::as_str));
            assert_eq!(one, Some(name), "{endpoint} {path}: {schema}");
            if path != "seed" {
                assert_eq!(schema["minimum"].as_f64(), Some(least), "{endpoint} {path}: {schema}");
            }
            if !OF_THE_SERVER.contains(&path) {
                assert_eq!(schema["maximum"].as_f64(), Some(most), "{endpoint} {path}: {schema}");
            }
        }
    }
}

#[test]
fn ranking_takes_any_number_of_results() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let model = dir.path().join("ranker.gguf");
    Released::new("bert", false).unwrap().write(&model, 1, None).unwrap();
    let server = Server::start(&model, ["--reranking"]);
    server.post("/rerank", &base("/rerank")).ok();
    let before = server.peak_memory();
    for row in NUMBERS.iter().filter(|row| row.1 == One("/rerank")) {
        walk(&server, "/rerank", row.0, row, &extremes());
        walk(&server, "/rerank", row.0, row, &ends(row));
    }
    // Each document is asked about with the whole query.
    let many: Vec<&str> = std::iter::repeat_n("b", 5000).collect();
    let query = "a ".repeat(40);
    let error = server.post("/rerank", &json!({"query": query, "documents": many})).error(400);
    assert!(error["message"].as_str().unwrap().contains("2048"), "{error}");
    let grown = server.peak_memory() - before;
    assert!(grown < MOST_GROWTH, "{} MiB", grown >> 20);
}

/// Lists are copied for each of many answers.
#[test]
fn lists_and_many_answers_take_little_memory_together() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = start(dir.path());
    server.post("/completion", &base("/completion")).ok();
    let before = server.peak_memory();
    let many = |text: &str, count: usize| Value::from(std::iter::repeat_n(text, count).collect::<Vec<_>>());
    let pairs: Vec<Value> = (0..2000).map(|_| json!(["a b c d e ".repeat(20), -1])).collect();
    let (prompts, windows) = (many("a", 128), json!(i32::MAX));
    let (memory, samplers) = ("before they are generated", "more than the 32 samplers");
    for (body, part) in [
        (json!({"prompt": prompts}), Some(memory)),
        (json!({"prompt": prompts, "n": 16}), None),
        (json!({"prompt": prompts, "dry_multiplier": 0.8, "dry_penalty_last_n": windows}), Some(memory)),
        (json!({"prompt": prompts, "stop": ["x".repeat(1 << 20)]}), Some(memory)),
        (json!({"prompt": "a", "logit_bias": pairs}), Some(memory)),
        (
            json!({"prompt": "a", "dry_multiplier": 0.8, "dry_sequence_breakers": many("e", 4000)}),
            Some(memory),
        ),
        (json!({"prompt": "a", "samplers": "d".repeat(33)}), Some(samplers)),
        (json!({"prompt": "a", "samplers": "d".repeat(1 << 20)}), Some(samplers)),
        (json!({"prompt": "a", "samplers": many("dry", 4000)}), Some(samplers)),
    ] {
        let mut body = body;
        let n = body["n"].as_u64().unwrap_or(64);
        let more =
            json!({"n": n, "n_predict": 1, "max_tokens": 1, "repeat_last_n": windows, "repeat_penalty": 1.1});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        for path in ["/completion", "/v1/completions"] {
            let reply = server.post(path, &body);
            match part {
                // More answers than wait in the queue.
                None => assert_eq!(reply.status, 429, "{path}: {}", reply.text),
                Some(part) => {
                    let error = reply.error(400);
                    assert!(error["message"].as_str().unwrap().contains(part), "{path}: {error}");
                }
            }
        }
        let grown = server.peak_memory() - before;
        let names: Vec<&String> = body.as_object().unwrap().keys().collect();
        assert!(grown < 512 << 20, "{names:?} has cost {} MiB", grown >> 20);
    }
    server.post("/completion", &base("/completion")).ok();
}
