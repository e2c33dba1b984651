//! Probabilities of the tokens of a conversation's answer, and its content.

use crate::chat_answers::{with, with_tools};
use crate::json_schemas::{content, format, talk};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

/// As guidance puts its text together.
#[test]
fn probabilities_are_those_of_the_content() {
    let (server, _dir) = with_tools();
    let schema = json!({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": false});
    for seed in 1..=4 {
        let more = json!({"logprobs": true, "top_logprobs": 2, "seed": seed, "temperature": 2, "max_tokens": 300, "reasoning_format": "auto", "cache_prompt": false});
        let body = with(with(talk(), &format(&schema)), &more);
        let answer = server.post(CHAT, &body).ok();
        let text = |list: &Value| -> String {
            list.as_array().unwrap().iter().map(|one| one["token"].as_str().unwrap()).collect()
        };
        assert_eq!(text(&answer["choices"][0]["logprobs"]["content"]), content(&answer));
        let events = server.post(CHAT, &with(body, &json!({"stream": true}))).events();
        let (mut tokens, mut streamed) = (String::new(), String::new());
        for event in &events {
            let choice = &event["choices"][0];
            streamed += choice["delta"]["content"].as_str().unwrap_or_default();
            if choice["logprobs"].is_object() {
                tokens += &text(&choice["logprobs"]["content"]);
            }
        }
        assert_eq!((&tokens, &streamed), (&streamed, &content(&answer)));
    }
    let tool = json!({"type": "function", "function": {"name": "now"}});
    let call =
        json!({"tools": [tool], "tool_choice": "required", "parallel_tool_calls": false, "logprobs": true});
    let answer = server.post(CHAT, &with(talk(), &call)).ok()["choices"][0].clone();
    assert_eq!((&answer["message"]["content"], &answer["logprobs"]["content"]), (&Value::Null, &json!([])));
}
