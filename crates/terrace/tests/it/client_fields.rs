//! Fields that clients of other servers send: all are answered, or refused with a reason.

use crate::chat_answers::{with, with_tools};
use crate::common::bundled;
use crate::json_schemas::{content, talk};
use crate::server::Server;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::io::Write;

const CHAT: &str = "/v1/chat/completions";

#[test]
fn fields_of_other_servers_are_understood() {
    let (server, _dir) = with_tools();
    let few = json!({"max_tokens": 3});
    for more in [
        json!({"verbosity": "low"}),
        json!({"thinking": {"type": "disabled"}}),
        json!({"thinking": {"type": "enabled", "budget_tokens": 5}}),
        json!({"stream_options": {"include_usage": true, "continuous_usage_stats": true}}),
        json!({"messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": null},
            {"role": "user", "content": "Well?"},
        ]}),
    ] {
        let reply = server.post(CHAT, &with(with(talk(), &few), &more));
        reply.ok();
        assert_eq!(reply.header("x-terrace-warning"), "", "{more}");
    }
    let prompt = |more: &Value| {
        let body = with(json!({"messages": talk()["messages"]}), more);
        server.post("/apply-template", &body).ok()["prompt"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        prompt(&json!({"thinking": {"type": "disabled"}})),
        prompt(&json!({"enable_thinking": false}))
    );
    for (more, expected) in [
        (json!({"guided_choice": ["left", "right"]}), &["left", "right"][..]),
        (json!({"structured_outputs": {"regex": "le(ft){1}|right"}}), &["left", "right"]),
        (json!({"regex": "ab"}), &["ab"]),
        (json!({"ebnf": "root ::= \"cd\""}), &["cd"]),
    ] {
        let text = content(&server.post(CHAT, &with(talk(), &more)).ok());
        assert!(expected.contains(&text.as_str()), "{text}");
    }
    let running =
        json!({"stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    let events = server.post(CHAT, &with(with(talk(), &few), &running)).events();
    let counts: Vec<u64> =
        events.iter().map(|event| event["usage"]["completion_tokens"].as_u64().unwrap()).collect();
    assert!(counts.is_sorted() && counts.last() == Some(&3), "{counts:?}");
}

#[test]
fn bodies_may_be_compressed_and_paths_end_with_a_slash() {
    let server = Server::start(&bundled(), ["--ctx", "128"]);
    let body = json!({"prompt": "In the beginning", "max_tokens": 2}).to_string();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body.as_bytes()).unwrap();
    let packed = encoder.finish().unwrap();
    let send = |coding: &str, body: &[u8]| {
        let request = ureq::post(server.url("/v1/completions")).header("content-encoding", coding);
        let config = request.config().http_status_as_error(false).build();
        config.content_type("application/json").send(body).unwrap().status().as_u16()
    };
    assert_eq!(send("gzip", &packed), 200);
    assert_eq!(send("gzip", body.as_bytes()), 400);
    assert_eq!(send("br", &packed), 415);
    assert_eq!(send("identity", body.as_bytes()), 200);
    server.post_bytes("/v1/completions/", body.as_bytes()).ok();
    assert_eq!(server.get("/v1/models/").ok(), server.get("/v1/models").ok());
}

#[test]
fn anthropics_streams_count_the_prompt_once() {
    let server = Server::start(&bundled(), ["--ctx", "512"]);
    let body = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "temperature": 0});
    for _ in 0..2 {
        let whole = server.post("/v1/messages", &body).ok()["usage"].clone();
        let stream = server.post("/v1/messages", &with(body.clone(), &json!({"stream": true}))).text;
        let sum = |name: &str| -> u64 {
            let events = stream.lines().filter_map(|line| line.strip_prefix("data: "));
            let usages = events.map(|data| serde_json::from_str::<Value>(data).unwrap());
            let count = |event: Value| {
                event["message"]["usage"][name].as_u64().unwrap_or(0)
                    + event["usage"][name].as_u64().unwrap_or(0)
            };
            usages.map(count).sum()
        };
        let prompt = |of: &dyn Fn(&str) -> u64| of("input_tokens") + of("cache_read_input_tokens");
        assert_eq!(prompt(&sum), prompt(&|name| whole[name].as_u64().unwrap()), "{stream}");
        assert_eq!(sum("output_tokens"), 5, "{stream}");
    }
}
