//! OpenAI's responses, in the form that its clients and Codex read. The bundled model, with a template
//! that knows tools, writes whatever its grammar allows.

use crate::chat_answers::{with, with_tools};
use crate::server::Reply;
use serde_json::{Value, json};

const PATH: &str = "/v1/responses";

/// The events of a stream: each has the name of its type, and their numbers have no gaps.
#[track_caller]
fn events(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(reply.header("content-type"), "text/event-stream");
    let mut all = Vec::new();
    for event in reply.text.split("\n\n").filter(|event| event.starts_with("event: ")) {
        let (name, data) = event.trim_start_matches("event: ").split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!((&data["type"], &data["sequence_number"]), (&json!(name), &json!(all.len())));
        all.push(data);
    }
    assert!(!reply.text.contains("[DONE]"));
    all
}

/// The types of events, each once where it is repeated.
fn types(events: &[Value]) -> Vec<&str> {
    let mut types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    types.dedup();
    types
}

/// What all events of this type add up to.
fn deltas(events: &[Value], kind: &str) -> String {
    events
        .iter()
        .filter(|event| event["type"] == kind)
        .map(|event| event["delta"].as_str().unwrap())
        .collect()
}

/// Without what differs from one request to the next.
fn anonymous(mut output: Value) -> Value {
    for item in output.as_array_mut().unwrap() {
        item["id"].take();
        item["call_id"].take();
    }
    output
}

#[test]
fn texts_are_whole_and_streamed() {
    let (server, _dir) = with_tools();
    let body = json!({
        "model": "any",
        "instructions": "Be brief.",
        "input": [
            {"role": "developer", "content": "Rhyme."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        ],
        "max_output_tokens": 12,
        "temperature": 0,
        "store": true,
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
        "reasoning": {"effort": "none", "summary": "auto"},
        "metadata": {"a": "b"},
        "prompt_cache_key": "k",
        "cache_prompt": false,
    });
    let whole = server.post(PATH, &body).ok();
    assert_eq!((&whole["object"], &whole["status"]), (&json!("response"), &json!("incomplete")));
    assert_eq!(whole["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!((&whole["metadata"], &whole["store"]), (&json!({"a": "b"}), &json!(false)));
    let [message] = &whole["output"].as_array().unwrap()[..] else { panic!("{whole}") };
    assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!(message["status"], "incomplete");
    let part = &message["content"][0];
    assert_eq!(part["logprobs"].as_array().unwrap().len(), 12);
    // The same conversation as one of chat completions.
    let chat = json!({
        "messages": [{"role": "system", "content": "Be brief.\n\nRhyme."}, {"role": "user", "content": "Hi"}],
        "max_tokens": 12,
        "temperature": 0,
        "reasoning_effort": "none",
        "cache_prompt": false,
    });
    let chat = server.post("/v1/chat/completions", &chat).ok();
    assert_eq!(chat["choices"][0]["message"]["content"], part["text"]);
    let usage = &whole["usage"];
    assert_eq!(usage["input_tokens"], chat["usage"]["prompt_tokens"]);
    assert_eq!(usage["output_tokens"], 12);
    let counted = server.post("/v1/responses/input_tokens", &body).ok();
    assert_eq!(counted["input_tokens"], usage["input_tokens"]);

    let events = events(&server.post(PATH, &with(body, &json!({"stream": true}))));
    let order = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ];
    assert_eq!(types(&events), order);
    assert_eq!(deltas(&events, "response.output_text.delta"), part["text"].as_str().unwrap());
    let last = &events.last().unwrap()["response"];
    assert_eq!(anonymous(last["output"].clone()), anonymous(whole["output"].clone()));
    assert_eq!(events[0]["response"]["id"], last["id"]);
    assert!(events[0]["response"]["output"].as_array().unwrap().is_empty());
}

#[test]
fn tools_are_called_and_their_outputs_read() {
    let (server, _dir) = with_tools();
    let weather = json!({
        "type": "function",
        "name": "weather",
        "strict": true,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
        },
    });
    let question = json!({"role": "user", "content": "What is the weather in Rome?"});
    let body = json!({
        "input": [question],
        // Codex sends tools that this server does not have as well.
        "tools": [{"type": "namespace", "name": "sky", "tools": [weather]}, {"type": "web_search"}],
        "tool_choice": "required",
        "parallel_tool_calls": false,
        "reasoning_format": "none",
        "max_output_tokens": 200,
        "temperature": 0,
        "client_metadata": {"session": "s"},
    });
    let whole = server.post(PATH, &body).ok();
    assert_eq!(whole["status"], "completed", "{whole}");
    assert_eq!(whole["tools"].as_array().unwrap().len(), 1);
    let [call] = &whole["output"].as_array().unwrap()[..] else { panic!("{whole}") };
    assert_eq!((&call["type"], &call["status"]), (&json!("function_call"), &json!("completed")));
    assert_eq!((&call["name"], &call["namespace"]), (&json!("weather"), &json!("sky")));
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!(arguments["city"].is_string(), "{arguments}");

    let events = events(&server.post(PATH, &with(body.clone(), &json!({"stream": true}))));
    let order = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(types(&events), order);
    assert_eq!(
        deltas(&events, "response.function_call_arguments.delta"),
        call["arguments"].as_str().unwrap()
    );
    let last = &events.last().unwrap()["response"];
    assert_eq!(anonymous(last["output"].clone()), anonymous(whole["output"].clone()));

    // Clients that keep the conversation send the items back.
    let result = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "Sunny."});
    let more = json!({"input": [question, call, result], "tool_choice": "auto", "max_output_tokens": 4});
    let answered = server.post(PATH, &with(body.clone(), &more)).ok();
    assert_eq!(answered["output"][0]["type"], "message");
    let tokens = |more: &Value| {
        let mut body = with(body.clone(), more);
        body.as_object_mut().unwrap().remove("client_metadata");
        server.post("/v1/responses/input_tokens", &body).ok()["input_tokens"].as_u64().unwrap()
    };
    assert!(tokens(&more) > tokens(&json!({})), "the call and its output are read");
    assert_eq!(answered["usage"]["input_tokens"], tokens(&more));
}

#[test]
fn formats_are_kept_and_refusals_are_clear() {
    let (server, _dir) = with_tools();
    let schema = json!({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": false});
    let body = json!({
        "input": "Hi",
        "text": {"format": {"type": "json_schema", "name": "x", "strict": true, "schema": schema}},
        "max_output_tokens": 200,
        "temperature": 0,
    });
    let whole = server.post(PATH, &body).ok();
    assert_eq!(whole["status"], "completed", "{whole}");
    let text = whole["output"][0]["content"][0]["text"].as_str().unwrap();
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(value["a"].is_boolean());
    for (wrong, part) in [
        (json!({"previous_response_id": "resp_1"}), "keeps no responses"),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:;base64,AAEC"}]}]}),
            "no images",
        ),
        (json!({"tool_choice": {"type": "function", "name": "f"}}), "names the tool `f`"),
    ] {
        let error = server.post(PATH, &with(body.clone(), &wrong)).error(400);
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
    }
    server.post("/responses", &json!({"input": "Hi", "max_output_tokens": 1})).ok();
}
