//! Requests that are meant to harm the server. Each may be answered or refused, but not with a server error, and
//! nothing else may suffer from it.

use crate::wire::post;
use serde_json::{Value, json};

/// Numeric fields of `/completion`, each of which reaches a sampler, an allocation or a loop.
const NUMBERS: [&str; 22] = [
    "n_predict",
    "top_k",
    "top_p",
    "min_p",
    "min_keep",
    "typical_p",
    "temperature",
    "dynatemp_range",
    "repeat_last_n",
    "repeat_penalty",
    "presence_penalty",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "mirostat",
    "mirostat_tau",
    "n_probs",
    "n_keep",
    "n_indent",
    "seed",
    "xtc_probability",
];

/// A random hostile request. Answers have at most two tokens, so that they cost little where they are given.
pub fn hostile(prompt: &str, random: &mut fastrand::Rng) -> String {
    match random.u8(0..20) {
        // These cost up to a second of the engine each.
        0 => post(
            "/completion",
            &json!({"prompt": prompt, "n_predict": 2, "json_schema": nested_repetitions()}),
        ),
        1 => post("/completion", &json!({"prompt": prompt, "n_predict": 2, "grammar": many_alternatives()})),
        2 => post(
            "/completion",
            &json!({"prompt": prompt, "n_predict": 2, "grammar": "root ::= root root | \"a\""}),
        ),
        3 => post(
            "/completion",
            &json!({"prompt": prompt, "n_predict": 2, "stop": vec!["x".repeat(1000); 500]}),
        ),
        4 => post("/completion", &json!({"prompt": vec![i64::from(i32::MAX); 100], "n_predict": 2})),
        5 => post("/v1/chat/completions", &chat(json!("\u{202e}".repeat(2000)))),
        6 => post("/v1/chat/completions", &chat(broken_image())),
        7 => post("/slots/0?action=save", &json!({"filename": "../model.gguf"})),
        8 => post("/slots/0?action=restore", &json!({"filename": "/dev/zero"})),
        9 => post("/slots/99?action=erase", &json!({})),
        _ => extreme(prompt, random),
    }
}

/// A few numbers out of their ranges.
fn extreme(prompt: &str, random: &mut fastrand::Rng) -> String {
    let values = [
        json!(i32::MAX),
        json!(u32::MAX),
        json!(1_u64 << 53),
        json!(i64::MIN),
        json!(-1),
        json!(0),
        json!(1e308),
        json!(-1e308),
    ];
    let mut body = json!({"prompt": prompt, "n_predict": 2, "repeat_penalty": 1.1, "dry_multiplier": 0.8});
    for _ in 0..random.usize(1..4) {
        let field = NUMBERS[random.usize(..NUMBERS.len())];
        body[field] = values[random.usize(..values.len())].clone();
    }
    // An unbounded answer is bounded by the context, which would take its server slot for half a minute.
    if body["n_predict"].as_f64().is_none_or(|tokens| !(0.0..=2.0).contains(&tokens)) {
        body["n_predict"] = json!(2);
    }
    post("/completion", &body)
}

fn nested_repetitions() -> Value {
    json!({"type": "string", "pattern": "^(((((a{0,99}){0,99}){0,99}){0,99}){0,99})$"})
}

fn many_alternatives() -> String {
    let names: Vec<String> = (0..400).map(|number| format!("a{number}")).collect();
    let rules: String = names.iter().map(|name| format!("{name} ::= [a-z ]*\n")).collect();
    format!("root ::= ({})*\n{rules}", names.join(" | "))
}

fn chat(content: Value) -> Value {
    json!({"messages": [{"role": "user", "content": content}], "max_tokens": 2})
}

fn broken_image() -> Value {
    json!([{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}])
}
