//! What clients of llama-server send and expect beyond what the other APIs have.

use crate::common::{bundled, failure, run};
use crate::server::{Reply, Server};
use serde_json::{Value, json};

const TEXT: &str = "In the beginning God created the heaven and the earth.";

/// The events of a stream, which may end without a mark.
#[track_caller]
fn events(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{}", reply.text);
    let data = reply.text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[test]
fn prompts_may_be_objects_with_a_text() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let ask = |prompt: Value| server.post("/completion", &json!({"prompt": prompt, "n_predict": 6}));
    let plain = ask(json!(TEXT)).ok();
    assert_eq!(plain["has_new_line"], plain["content"].as_str().unwrap().contains('\n'));
    let object = json!({"prompt_string": TEXT});
    assert_eq!(ask(object.clone()).ok()["content"], plain["content"]);
    let several = ask(json!([TEXT, object])).ok();
    assert_eq!(several[0]["content"], plain["content"]);
    assert_eq!(several[1]["content"], plain["content"]);
    let image = json!({"prompt_string": "<__media__>", "multimodal_data": ["AAAA"]});
    assert!(ask(image).error(400)["message"].as_str().unwrap().contains("reads no images"));
    // The prompt is shown on demand.
    let shown = json!({"prompt": TEXT, "n_predict": 2, "response_fields": ["prompt", "generation_settings/n_predict"]});
    let shown = server.post("/completion", &shown).ok();
    assert_eq!(shown, json!({"prompt": TEXT, "generation_settings/n_predict": 2}));
    // Names that other programs have for the same.
    let other = json!({"prompt": TEXT, "max_new_tokens": 6, "stopping_strings": ["\n\n\n"]});
    assert_eq!(server.post("/completion", &other).ok()["content"], plain["content"]);
    let newline = json!({"prompt": "x", "n_predict": 3, "grammar": "root ::= \"a\\nb\""});
    assert_eq!(server.post("/completion", &newline).ok()["has_new_line"], true);
}

#[test]
fn streams_tell_how_much_of_the_prompt_is_done() {
    let server =
        Server::start(&bundled(), ["--ctx", "512", "--parallel", "1", "--batch", "32", "--ubatch", "32"]);
    let long = TEXT.repeat(8);
    let progress = |path: &str, body: Value| -> Vec<Value> {
        let mut body = body;
        for (name, value) in [("stream", true), ("return_progress", true)] {
            body[name] = value.into();
        }
        let events = events(&server.post(path, &body));
        let told = events.iter().filter(|event| event.get("prompt_progress").is_some());
        told.map(|event| {
            let (told, timings) = (&event["prompt_progress"], &event["timings"]);
            assert_eq!(
                timings["prompt_n"],
                told["processed"].as_u64().unwrap() - told["cache"].as_u64().unwrap()
            );
            told.clone()
        })
        .collect()
    };
    let messages = json!([{"role": "user", "content": long}]);
    for (path, body) in [
        ("/completion", json!({"prompt": long, "n_predict": 2})),
        ("/v1/completions", json!({"prompt": format!("And {long}"), "max_tokens": 2})),
        ("/v1/chat/completions", json!({"messages": messages, "max_tokens": 2})),
        ("/v1/responses", json!({"input": format!("So {long}"), "max_output_tokens": 2})),
    ] {
        let told = progress(path, body.clone());
        assert!(told.len() > 2, "{path}: {told:?}");
        let number = |value: &Value, name: &str| value[name].as_u64().unwrap();
        assert_eq!(number(&told[0], "processed"), number(&told[0], "cache"), "{path}");
        assert!(
            told.windows(2).all(|two| number(&two[0], "processed") < number(&two[1], "processed")),
            "{path}"
        );
        let last = told.last().unwrap();
        assert_eq!(number(last, "processed"), number(last, "total"), "{path}");
        // Again, most of it is still there.
        let again = progress(path, body);
        assert!(number(&again[0], "cache") > 0 && again.len() < told.len(), "{path}: {again:?}");
    }
    // Who does not ask is not told.
    let plain = events(&server.post("/completion", &json!({"prompt": long, "n_predict": 2, "stream": true})));
    assert!(plain.iter().all(|event| event.get("prompt_progress").is_none()));
}

#[test]
fn chats_are_counted_and_begin_with_their_role() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let messages = json!([{"role": "user", "content": "hello"}]);
    let body = json!({"messages": messages, "max_tokens": 3});
    let prompt = server.post("/v1/chat/completions", &body).ok()["usage"]["prompt_tokens"].clone();
    for path in ["/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"] {
        assert_eq!(server.post(path, &body).ok()["input_tokens"], prompt);
    }
    let message = json!({"messages": messages, "max_tokens": 3, "stop_sequences": ["x"], "thinking": {"type": "disabled"}});
    assert_eq!(server.post("/v1/messages/count_tokens", &message).ok()["input_tokens"], prompt);
    let stream = json!({"messages": messages, "max_tokens": 3, "stream": true, "stream_options": {"include_usage": true}});
    let events = server.post("/v1/chat/completions", &stream).events();
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": null}));
    let last = events.last().unwrap();
    assert_eq!(
        (&last["choices"], &last["timings"]["predicted_n"]),
        (&json!([]), &last["usage"]["completion_tokens"])
    );

    // What is wrong is found before anything is counted.
    let turn = json!({"role": "assistant", "content": "y"});
    let error =
        server.post("/v1/chat/completions", &json!({"messages": [messages[0], turn, turn]})).error(400);
    assert!(error["message"].as_str().unwrap().contains("two turns of the assistant"), "{error}");
    let many: Vec<String> = (0..65).map(|n| n.to_string()).collect();
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let body = json!({"messages": messages, "max_tokens": 3, "stop_sequences": many});
        let reply = server.post(path, &body);
        assert_eq!(reply.status, 400, "{path}");
        assert!(reply.json()["error"]["message"].as_str().unwrap().contains("at most 64"), "{path}");
        let reply = server.post(path, &json!({"messages": messages, "max_tokens": "3"}));
        assert_eq!(reply.status, 400, "{path}");
    }
}

#[test]
fn tokens_that_end_texts_are_shown_as_forbidden() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let biases = |ignore: bool| {
        let body = json!({"prompt": "x", "n_predict": 1, "ignore_eos": ignore});
        server.post("/completion", &body).ok()["generation_settings"]["logit_bias"].clone()
    };
    assert_eq!(biases(false), json!([]));
    let forbidden = biases(true);
    let forbidden = forbidden.as_array().unwrap();
    assert!(!forbidden.is_empty() && forbidden.iter().all(|entry| entry["bias"].is_null()), "{forbidden:?}");
}

#[test]
fn pages_of_this_machine_may_ask_whatever_their_port() {
    let server = Server::start(&bundled(), ["--ctx", "256", "--cors-origin", "localhost"]);
    let from = |origin: &str| {
        let body = json!({"prompt": "x", "n_predict": 1}).to_string();
        server.request("POST", "/completion", &[("origin", origin)], &body)
    };
    let reply = from("http://127.0.0.1:3000");
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, "http://127.0.0.1:3000"));
    assert_eq!(from("http://localhost.evil.example").status, 403);
    let metrics = server.get("/metrics");
    assert!(metrics.header("process-start-time-unix").parse::<u64>().unwrap() > 1_700_000_000);
}

#[test]
fn llama_cpps_templates_are_known_by_their_names() {
    let body = json!({"messages": [{"role": "user", "content": "hello"}]});
    for (name, prompt) in [
        ("chatml", "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"),
        (
            "llama3",
            "<|start_header_id|>user<|end_header_id|>\n\nhello<|eot_id|>\
             <|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        ("gemma", "<start_of_turn>user\nhello<end_of_turn>\n<start_of_turn>model\n"),
    ] {
        let server = Server::start(&bundled(), ["--ctx", "256", "--chat-template", name]);
        assert_eq!(server.post("/apply-template", &body).ok()["prompt"], prompt, "{name}");
        let asked = json!({"messages": body["messages"], "max_tokens": 2});
        server.post("/v1/chat/completions", &asked).ok();
        // Such a template writes roles and texts alone.
        let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {}}}]);
        let refused = json!({"messages": body["messages"], "tools": tools});
        if name != "chatml" {
            assert_eq!(server.post("/v1/chat/completions", &refused).status, 400, "{name}");
            let begun = json!({"messages": [body["messages"][0], {"role": "assistant", "content": "x"}]});
            let error = server.post("/apply-template", &begun).error(400);
            assert!(error["message"].as_str().unwrap().contains("cannot go on"), "{error}");
        }
    }
    let model = bundled();
    let named = run(["run", model.to_str().unwrap(), "-p", "x", "--chat", "--chat-template", "llama33"]);
    let error = failure(&named, 2);
    assert!(error.contains("neither Jinja source nor a template"), "{error}");
}

#[test]
fn thinking_is_a_matter_of_the_server_where_requests_do_not_say_it() {
    let template = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tools.jinja");
    let start = |more: &[&str]| {
        let shared = ["--ctx", "256", "--chat-template-file", template];
        Server::start(&bundled(), shared.iter().chain(more))
    };
    let hello = json!([{"role": "user", "content": "hello"}]);
    let prompt = |server: &Server, more: Value| {
        let mut body = json!({"messages": hello});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/apply-template", &body).ok()["prompt"].clone()
    };
    let (on, off) = (start(&["-v"]), start(&["--reasoning", "off", "--chat-template-kwargs", "{\"a\": 1}"]));
    let (thinks, not) = (prompt(&on, json!({})), prompt(&off, json!({})));
    assert_ne!(thinks, not);
    assert_eq!(prompt(&on, json!({"enable_thinking": false})), not);
    assert_eq!(prompt(&off, json!({"chat_template_kwargs": {"enable_thinking": true}})), thinks);
    // With -v, what the template wrote and what the model did are told.
    let asked = json!({"messages": hello, "max_tokens": 3, "temperature": 0});
    let told = on.post("/v1/chat/completions", &asked).ok()["__verbose"].clone();
    assert_eq!((&told["prompt"], &told["tokens_predicted"]), (&thinks, &json!(3)));
    assert!(off.post("/v1/chat/completions", &asked).ok()["__verbose"].is_null());
    let asked = json!({"messages": hello, "max_tokens": 3, "stream": true, "verbose": true});
    let events = off.post("/v1/chat/completions", &asked).events();
    assert!(events.iter().any(|event| event["__verbose"]["prompt"] == not), "{events:?}");
    let error = failure(&run(["serve", "x.gguf", "--chat-template-kwargs", "[1]"]), 2);
    assert!(error.contains("no JSON object"), "{error}");
}
