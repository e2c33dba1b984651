//! Requests with tools and a schema: a call is made, or JSON is written, in all APIs.

use crate::chat_answers::{with, with_tools};
use serde_json::{Value, json};

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"answer": {"type": "boolean"}},
        "required": ["answer"],
        "additionalProperties": false,
    })
}

fn city() -> Value {
    json!({
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 8}},
        "required": ["city"],
        "additionalProperties": false,
    })
}

/// As openai-agents asks with `output_type`.
fn chat() -> Value {
    json!({
        "messages": [{"role": "user", "content": "What is the weather in Rome?"}],
        "max_tokens": 200,
        "temperature": 0,
        "reasoning_format": "none",
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": city()}}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema()}},
    })
}

#[track_caller]
fn is_call(arguments: &Value) {
    let arguments =
        arguments.as_str().map_or_else(|| arguments.clone(), |text| serde_json::from_str(text).unwrap());
    assert!(arguments["city"].is_string(), "{arguments}");
}

#[test]
fn required_and_named_tools_are_called_despite_a_schema() {
    let (server, _dir) = with_tools();
    for choice in [json!("required"), json!({"type": "function", "function": {"name": "weather"}})] {
        let body = with(chat(), &json!({"tool_choice": choice, "parallel_tool_calls": false}));
        let answer = server.post("/v1/chat/completions", &body).ok()["choices"][0].clone();
        assert_eq!(answer["finish_reason"], "tool_calls", "{answer}");
        is_call(&answer["message"]["tool_calls"][0]["function"]["arguments"]);
    }
    let body = json!({
        "input": "What is the weather in Rome?",
        "max_output_tokens": 200,
        "temperature": 0,
        "reasoning_format": "none",
        "tools": [{"type": "function", "name": "weather", "parameters": city()}],
        "tool_choice": "required",
        "parallel_tool_calls": false,
        "text": {"format": {"type": "json_schema", "name": "x", "schema": schema()}},
    });
    let answer = server.post("/v1/responses", &body).ok();
    let call = answer["output"].as_array().unwrap().iter().find(|item| item["type"] == "function_call");
    is_call(&call.unwrap_or_else(|| panic!("{answer}"))["arguments"]);
    let body = json!({
        "messages": [{"role": "user", "content": "What is the weather in Rome?"}],
        "max_tokens": 200,
        "temperature": 0,
        "reasoning_format": "none",
        "tools": [{"name": "weather", "input_schema": city()}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
        "output_config": {"format": {"type": "json_schema", "schema": schema()}},
    });
    let answer = server.post("/v1/messages", &body).ok();
    assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
    let call = answer["content"].as_array().unwrap().iter().find(|block| block["type"] == "tool_use");
    is_call(&call.unwrap_or_else(|| panic!("{answer}"))["input"]);
}

#[test]
fn without_a_choice_the_answer_is_a_call_or_json() {
    let (server, _dir) = with_tools();
    for seed in 1..=6 {
        let drawn = json!({"temperature": 2, "seed": seed, "parallel_tool_calls": false, "max_tokens": 300});
        let answer = server.post("/v1/chat/completions", &with(chat(), &drawn)).ok()["choices"][0].clone();
        let message = &answer["message"];
        match answer["finish_reason"].as_str() {
            Some("tool_calls") => {
                assert_eq!(message["content"], Value::Null, "{message}");
                is_call(&message["tool_calls"][0]["function"]["arguments"]);
            }
            Some("stop") => {
                assert_eq!(message.get("tool_calls"), None);
                let value: Value = serde_json::from_str(message["content"].as_str().unwrap()).unwrap();
                assert!(value["answer"].is_boolean(), "{value}");
            }
            _ => panic!("{answer}"),
        }
    }
    // Where calls are forbidden, it is JSON.
    let none = with(chat(), &json!({"tool_choice": "none"}));
    let answer = server.post("/v1/chat/completions", &none).ok()["choices"][0]["message"]["content"].clone();
    let value: Value = serde_json::from_str(answer.as_str().unwrap()).unwrap();
    assert!(value["answer"].is_boolean(), "{value}");
}

/// llama-server's issue 25510.
#[test]
fn a_call_that_was_cut_off_does_not_end_the_conversation() {
    let (server, _dir) = with_tools();
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
    }}});
    for cut in ["{", "{\"city\": \"R", ""] {
        let call = json!({"id": "c", "type": "function", "function": {"name": "weather", "arguments": cut}});
        let talk = json!({
            "messages": [
                {"role": "user", "content": "What is the weather in Rome?"},
                {"role": "assistant", "content": null, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": "The arguments are not JSON."},
            ],
            "tools": [tool],
            "max_tokens": 3,
        });
        server.post("/v1/chat/completions", &talk).ok();
        let prompt = server.post("/apply-template", &talk).ok()["prompt"].as_str().unwrap().to_owned();
        assert!(prompt.contains(&format!("\"arguments\": {cut}}}")), "{prompt}");
        let items = json!({
            "input": [
                {"role": "user", "content": "Hi"},
                {"type": "function_call", "call_id": "c", "name": "weather", "arguments": cut},
                {"type": "function_call_output", "call_id": "c", "output": "?"},
            ],
            "max_output_tokens": 3,
        });
        server.post("/v1/responses", &items).ok();
        let turns = json!({
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "weather", "input": cut}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "?"}]},
            ],
            "max_tokens": 3,
        });
        server.post("/v1/messages", &turns).ok();
    }
}
