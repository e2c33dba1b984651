//! Grammars and schemas that would take llama.cpp for ever, all memory or all stack: they are refused
//! while others are answered. And a server whose engine hangs: it ends when it is told to.

use crate::common::{bundled, failure, json as json_of, run};
use crate::server::{Server, golden, streamed_text};
use serde_json::{Value, json};
use std::io::Read;
use std::time::{Duration, Instant};

/// A repetition of repetitions that may be empty.
const NESTED: &str = "^(((((a{0,99}){0,99}){0,99}){0,99}){0,99})$";

/// Many alternatives that match the same texts.
fn alternatives() -> String {
    format!("root ::= ({})*", vec!["[a-z ]*"; 400].join(" | "))
}

fn schema() -> Value {
    json!({"type": "string", "pattern": NESTED})
}

/// Rules that each have the next one twice.
fn doubling(rules: usize) -> String {
    let rules: Vec<String> = (0..rules).map(|i| format!("r{i} ::= r{} | r{}\n", i + 1, i + 1)).collect();
    format!("root ::= r0\n{}r{} ::= \"a\"", rules.concat(), rules.len())
}

fn chain(rules: usize) -> String {
    let rules: Vec<String> = (0..rules).map(|i| format!("r{i} ::= r{}\n", i + 1)).collect();
    format!("root ::= r0\n{}r{} ::= \"a\"", rules.concat(), rules.len())
}

#[test]
fn grammars_that_are_too_ambiguous_fail_while_others_are_answered() {
    let prompt = "And God said";
    let expected = golden(prompt, 8);
    let server = Server::start(&bundled(), ["--parallel", "2"]);
    let before = server.memory();
    for (field, value) in [("json_schema", schema()), ("grammar", alternatives().into())] {
        let ask = |stream: bool| {
            let mut body = json!({"prompt": "a", "max_tokens": 64, "stream": stream});
            body[field] = value.clone();
            body
        };
        let hostile = [false, true].map(|stream| server.begin("/v1/completions", &ask(stream)));
        let plain = json!({"prompt": prompt, "max_tokens": 8});
        assert_eq!(server.post("/v1/completions", &plain).ok()["choices"][0]["text"], *expected);
        let streamed =
            server.post("/v1/completions", &json!({"prompt": prompt, "max_tokens": 8, "stream": true}));
        assert_eq!(streamed_text(&streamed.events()), expected);
        let texts = hostile.map(|mut stream| {
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        });
        assert!(texts[0].starts_with("HTTP/1.1 400 "), "{}", texts[0]);
        for text in &texts {
            assert!(text.contains("grammar_too_ambiguous") && text.contains("takes more than"), "{text}");
            assert!(!text.contains("[DONE]"), "{text}");
        }
    }
    assert_eq!(server.processing(), 0);
    let most = 400 << 20;
    assert!(server.peak_memory() < before + most, "{} from {before}", server.peak_memory());
    server.signal("-TERM");
    let (status, said) = server.ended();
    assert_eq!(status.code(), Some(0), "{said}");
}

#[test]
fn a_client_that_leaves_frees_its_slot_whatever_its_grammar() {
    let server = Server::start(&bundled(), ["--parallel", "1"]);
    // Each token takes long, but not too long.
    let slow = format!("root ::= ({})*", vec!["[a-z ]*"; 30].join(" | "));
    let body = json!({"prompt": "a", "max_tokens": 500, "grammar": slow, "ignore_eos": true});
    for _ in 0..3 {
        let leaves = server.begin("/v1/completions", &body);
        server.wait_for(|server| server.processing() == 1);
        drop(leaves);
        server.wait_for(|server| server.processing() == 0);
    }
    server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 2})).ok();
}

#[test]
fn grammars_that_cannot_be_read_in_time_or_stack_are_refused() {
    let server = Server::start(&bundled(), ["--parallel", "1"]);
    let nest = format!("root ::= {}\"a\"{}", "(".repeat(12_000), ")".repeat(12_000));
    let characters = |count: u32| (0..count).map(|i| char::from_u32(0x4e00 + i).unwrap()).collect::<String>();
    for (grammar, part) in [
        (nest, "recurses too deeply"),
        (chain(60_000), "begin with one another"),
        (doubling(60), "begin with the same rules"),
        (format!("root ::= [{}]", characters(12_000)), "a character class"),
        ("root ::= a\na ::= b | \"x\"\nb ::= a".into(), "left recursion"),
        (format!("root ::= {}", "\"a\"{1999} ".repeat(10_000)), "takes more than 64 MiB"),
        (format!("root ::= ({}){{1,1999}}", "\"abcdefghij\" ".repeat(10_000)), "begin with the same rules"),
    ] {
        let reply =
            server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 2, "grammar": grammar}));
        let error = reply.error(400);
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with("cannot use the grammar: ") && message.contains(part), "{message}");
    }
    // What is as deep as anyone writes is not.
    let nested = format!("root ::= {}\"a\"{}", "(".repeat(200), ")".repeat(200));
    for grammar in [nested, chain(1_000), doubling(12), format!("root ::= [a{}]", characters(8_000))] {
        let ask = json!({"prompt": "a", "max_tokens": 1, "grammar": grammar});
        assert_eq!(server.post("/v1/completions", &ask).ok()["choices"][0]["text"], "a");
    }
    // Schemas that are only references to each other.
    let any =
        |i: u32| json!({"anyOf": [{"$ref": format!("#/$defs/a{i}")}, {"$ref": format!("#/$defs/a{i}")}]});
    let mut schema = json!({"$ref": "#/$defs/a0", "$defs": {"a40": {"type": "string"}}});
    (0..40).for_each(|i| schema["$defs"][format!("a{i}")] = any(i + 1));
    let reply =
        server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 2, "json_schema": schema}));
    let error = reply.error(400);
    assert!(error["message"].as_str().unwrap().starts_with("cannot use the JSON schema: "), "{error}");
    server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 2})).ok();
}

#[test]
fn a_run_with_such_a_grammar_fails_in_one_line() {
    let model = bundled();
    let base = ["run", model.to_str().unwrap(), "-p", "a", "-n", "64", "--temp", "0"];
    let error = failure(&run(base.iter().copied().chain(["--json", "--grammar", &alternatives()])), 1);
    assert!(error.contains("too ambiguous") && error.contains("takes more than"), "{error}");
    let error = failure(&run(base.iter().copied().chain(["--json", "-j", &schema().to_string()])), 1);
    assert!(error.contains("takes more than"), "{error}");
    // One that is allowed gives the text that it gives without a bound in the way.
    let report = json_of(&run(base.iter().copied().chain(["--json", "--grammar", "root ::= [a-z ]*"])));
    assert!(report["text"].as_str().unwrap().chars().all(|c| c.is_ascii_lowercase() || c == ' '), "{report}");
}

#[test]
fn a_server_whose_engine_hangs_ends_when_it_is_told_to() {
    // A read that takes an hour.
    let hangs = ["--stream", "experts", "--ram-budget", "4MiB", "--inject-fault", "latency=3600s@400.."];
    let server = Server::start(&bundled(), hangs.iter().chain(&["--grace", "1"]));
    let _running = server.begin("/v1/completions", &json!({"prompt": "And God said", "max_tokens": 500}));
    server.wait_for(|server| server.processing() == 1);
    std::thread::sleep(Duration::from_millis(500));
    let begin = Instant::now();
    server.signal("-TERM");
    let (status, said) = server.ended();
    let took = begin.elapsed();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("error: not everything ended within 8 s"), "{said}");
    assert!(took >= Duration::from_secs(8), "{took:?}");
}
