//! Requests: good ones, and those that have to be refused.

use crate::wire::{get, post};
use serde_json::{Value, json};

/// Numbers of tokens that are asked for.
pub const LENGTHS: [usize; 3] = [1, 6, 24];

/// Prompts of a few to some hundred tokens.
pub struct Prompts(Vec<String>);

impl Prompts {
    pub fn new() -> Self {
        const TEXT: &str = "In the beginning God created the heaven and the earth. And the earth was without form, \
            and void; and darkness was upon the face of the deep. And the Spirit of God moved upon the face of the \
            waters. And God said, Let there be light: and there was light. And God saw the light, that it was good: \
            and God divided the light from the darkness. And God called the light Day, and the darkness he called \
            Night. And the evening and the morning were the first day.";
        let words: Vec<&str> = TEXT.split(' ').collect();
        let ranges = [0..1, 3..8, 20..31, 50..70, 0..40, 10..90, 11..95, 40..60];
        Self(
            ranges
                .into_iter()
                .map(|range| words[range.start..range.end.min(words.len())].join(" "))
                .collect(),
        )
    }

    pub fn all(&self) -> &[String] {
        &self.0
    }
}

/// The fields of a request for a greedy text that depends on nothing else.
pub fn body(prompt: &str, tokens: usize, stream: bool) -> Value {
    json!({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "cache_prompt": false, "stream": stream})
}

/// A request for a text that depends on chance and on what was asked before.
pub fn by_chance(prompt: &str, random: &mut fastrand::Rng) -> String {
    let (temperature, tokens) = (random.f64() * 2.0, random.u32(1..40));
    match random.u8(0..3) {
        0 => {
            let messages = json!([{"role": "user", "content": prompt}]);
            let body = json!({"messages": messages, "max_tokens": tokens, "temperature": temperature});
            post("/v1/chat/completions", &body)
        }
        1 => {
            let options = json!({"num_predict": tokens, "temperature": temperature, "stop": ["the", "."]});
            post("/api/generate", &json!({"prompt": prompt, "stream": false, "options": options}))
        }
        _ => {
            let body = json!({"prompt": prompt, "n_predict": tokens, "temperature": temperature, "top_k": 5});
            post("/completion", &body)
        }
    }
}

/// A request that is wrong, and the status of its refusal.
pub fn wrong(random: &mut fastrand::Rng) -> (u16, String) {
    let raw = |body: &str| {
        let length = body.len();
        format!("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let head = |lines: &str| format!("POST /tokenize HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n");
    match random.u8(0..14) {
        0 => (400, raw("")),
        1 => (400, raw("{\"prompt\": \"x\"")),
        2 => (400, raw(&"[".repeat(random.usize(1..200_000)))),
        3 => (400, raw("{\"prompt\": 5}")),
        4 => (400, post("/v1/completions", &json!({"prompt": "x", "temperature": "hot"}))),
        5 => (400, post("/v1/chat/completions", &json!({"messages": [{"role": "x", "content": "y"}]}))),
        6 => (404, get("/v1/nothing")),
        7 => (405, get("/v1/completions")),
        8 => (400, "nonsense\r\n\r\n".into()),
        9 => (400, head("Transfer-Encoding: chunked\r\n") + "zz\r\n"),
        // These are too large.
        10 => (413, head("Content-Length: 99999999\r\n")),
        11 => (400, post("/v1/completions", &json!({"prompt": "water ".repeat(random.usize(600..20_000))}))),
        12 => (431, format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101))),
        _ => {
            let content = "word ".repeat(random.usize(100..30_000));
            (200, post("/tokenize", &json!({"content": content})))
        }
    }
}
