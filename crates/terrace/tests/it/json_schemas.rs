//! JSON schemas: what answers follow of them, and what is said of the rest.

use crate::chat_answers::with;
use crate::common::bundled;
use crate::server::Server;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

pub fn talk() -> Value {
    json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 200, "temperature": 0, "reasoning_format": "none"})
}

pub fn content(answer: &Value) -> String {
    answer["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

pub fn format(schema: &Value) -> Value {
    json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}})
}

#[test]
fn keywords_of_schemas_that_do_not_hold_are_named() {
    let number = json!({"type": "number", "minimum": 3});
    let schema = json!({"type": "object", "properties": {"n": number}, "required": ["n"]});
    let server = Server::start(&bundled(), ["--ctx", "1024"]);
    let reply = server.post(CHAT, &with(talk(), &format(&schema)));
    let named = "response_format#/properties/n/minimum";
    assert_eq!(reply.ok()["terrace"]["unenforced"], json!([named]));
    assert_eq!(reply.header("x-terrace-unenforced"), named);
    let plain = json!({"prompt": "x", "json_schema": schema, "max_tokens": 100});
    let reply = server.post("/v1/completions", &plain);
    assert_eq!(reply.ok()["terrace"]["unenforced"], json!(["json_schema#/properties/n/minimum"]));
    let ollama = json!({"messages": talk()["messages"], "format": schema, "stream": false, "options": {"num_predict": 100}});
    assert_eq!(
        server.post("/api/chat", &ollama).header("x-terrace-unenforced"),
        "format#/properties/n/minimum"
    );
    let whole = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 4}}, "required": ["n"]});
    let reply = server.post(CHAT, &with(talk(), &format(&whole)));
    assert_eq!(
        (reply.header("x-terrace-unenforced"), &reply.ok()["terrace"]["unenforced"]),
        ("", &Value::Null)
    );
    server.signal("-TERM");
    let log = server.ended().1;
    assert_eq!(log.matches(named).count(), 1, "{log}");

    let strict = Server::start(&bundled(), ["--ctx", "1024", "--strict"]);
    let error = strict.post(CHAT, &with(talk(), &format(&schema))).error(400);
    assert_eq!(error["code"], "unsupported_parameter");
    assert!(error["message"].as_str().unwrap().contains("#/properties/n/minimum"), "{error}");
    strict.post(CHAT, &with(talk(), &format(&whole))).ok();
}

#[test]
fn patterns_and_rare_schemas_hold() {
    let server = Server::start(&bundled(), ["--ctx", "1024"]);
    let ask = |value: &Value, seed: u64| -> Value {
        let schema = json!({"type": "object", "properties": {"d": value}, "required": ["d"], "additionalProperties": false});
        let drawn = json!({"seed": seed, "temperature": 2, "max_tokens": 400});
        let reply = server.post(CHAT, &with(with(talk(), &format(&schema)), &drawn)).ok();
        assert_eq!(reply["terrace"]["unenforced"], Value::Null, "{reply}");
        let text = content(&reply);
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        value["d"].clone()
    };
    let string = |pattern: &str| json!({"type": "string", "pattern": pattern});
    for seed in [1, 2, 3] {
        assert_eq!(ask(&string(r"^hello\\!$"), seed), r"hello\!");
        assert_eq!(ask(&string(r#"^"x"$"#), seed), "\"x\"");
        let digits = ask(&string(r"^\d{4}-\d{2}$"), seed);
        let digits = digits.as_str().unwrap();
        assert!(digits.len() == 7 && digits.replace('-', "").bytes().all(|b| b.is_ascii_digit()), "{digits}");
        let other = ask(&string("^[^a-z]{3}$"), seed);
        assert!(other.as_str().unwrap().chars().count() == 3, "{other}");
        let pair = ask(
            &json!({"prefixItems": [{"type": "boolean"}, {"const": 7}], "items": false, "type": "array"}),
            seed,
        );
        assert!(pair[0].is_boolean() && pair[1] == 7 && pair.as_array().unwrap().len() == 2, "{pair}");
        let list = ask(&json!({"type": "array", "items": true, "maxItems": 2}), seed);
        assert!(list.as_array().unwrap().len() <= 2);
    }
    // A schema that says nothing is one of JSON all the same.
    for any in [json!({}), json!({"type": "object", "properties": {"a": {"$ref": "#"}}})] {
        let text = content(&server.post(CHAT, &with(talk(), &format(&any))).ok());
        let whole = serde_json::from_str::<Value>(&text);
        assert!(
            whole.as_ref().map_or_else(serde_json::Error::is_eof, |_| true),
            "no beginning of JSON: {text}"
        );
    }
    let broken = format(&json!({"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}));
    let error = server.post(CHAT, &with(talk(), &broken)).error(400);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("`#/properties/a/$ref`") && !message.contains("template"), "{message}");
}
