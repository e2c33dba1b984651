//! Options that choose tokens: what `run` writes with them, and what they make of requests to
//! `serve`.

use crate::common::{bundled, failure, json, run, stdout, terrace};
use crate::server::Server;
use serde_json::json;
use std::collections::HashSet;
use tempfile::TempDir;

/// The text of a run of the bundled model.
#[track_caller]
fn text(options: &[&str]) -> String {
    let output = terrace()
        .arg("run")
        .arg(bundled())
        .args(["-p", "And God said", "-n", "24", "--temp", "0"])
        .args(options)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", crate::common::stderr(&output));
    stdout(&output).trim_end().to_owned()
}

#[test]
fn grammars_and_schemas_keep_texts_within() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("answer.gbnf");
    std::fs::write(&file, "root ::= \" yes\" | \" no\"\n").unwrap();
    let grammar = text(&["--grammar-file", file.to_str().unwrap()]);
    assert!([" yes", " no"].contains(&grammar.as_str()), "{grammar}");
    assert_eq!(text(&["--grammar", "root ::= \" yes\" | \" no\""]), grammar);

    let schema = r#"{"type":"object","properties":{"day":{"enum":[1,2]}},"required":["day"],"additionalProperties":false}"#;
    let answer: serde_json::Value = serde_json::from_str(&text(&["-j", schema])).unwrap();
    assert!([json!({"day": 1}), json!({"day": 2})].contains(&answer), "{answer}");
}

#[test]
fn biases_and_penalties_change_texts() {
    let report = |options: &[&str]| {
        let base = ["-p", "And God said", "-n", "24", "--json"];
        json(&terrace().arg("run").arg(bundled()).args(base).args(options).output().unwrap())
    };
    let tokens = |report: &serde_json::Value| -> Vec<i64> {
        report["tokens"].as_array().unwrap().iter().map(|token| token.as_i64().unwrap()).collect()
    };
    let plain = tokens(&report(&["--temp", "0"]));
    let forbidden = tokens(&report(&["--temp", "0", "--logit-bias", &format!("{}-inf", plain[0])]));
    assert!(!forbidden.contains(&plain[0]), "{forbidden:?}");
    let penalised = tokens(&report(&["--temp", "0", "--presence-penalty", "100", "--repeat-last-n", "-1"]));
    let different: HashSet<_> = penalised.iter().collect();
    assert_eq!(different.len(), penalised.len(), "{penalised:?}");
    // All samplers off but one that keeps a single token.
    assert_eq!(tokens(&report(&["--samplers", "top_k", "--top-k", "1", "--temp", "5"])), plain);
}

#[test]
fn what_is_not_valid_is_refused_before_the_load() {
    let refused = |code, options: &[&str]| {
        let model = bundled();
        let options = options.iter().copied();
        failure(&run(["run", model.to_str().unwrap(), "-p", "x"].into_iter().chain(options)), code)
    };
    assert!(refused(1, &["--grammar", "root ::= ("]).contains("cannot use the grammar"));
    assert!(refused(1, &["-j", "{"]).contains("cannot use the JSON schema: EOF while parsing"));
    assert!(refused(2, &["--samplers", "magic"]).contains("`magic` is not a sampler"));
    let both = refused(2, &["--grammar", "root ::= \"a\"", "-j", "{}"]);
    assert!(both.contains("cannot be used with"), "{both}");
    let model = bundled();
    let unknown = run(["run", model.to_str().unwrap(), "-p", "x", "--logit-bias", "999999+1"]);
    assert!(failure(&unknown, 2).contains("the vocabulary has 2048 tokens"));
}

#[test]
fn options_of_a_server_are_the_defaults_of_requests() {
    let server = Server::start(&bundled(), ["--grammar", "root ::= \" yes\" | \" no\""]);
    let ask = |body| server.post("/v1/completions", &body).ok()["choices"][0]["text"].clone();
    let usual = ask(json!({"prompt": "And God said", "max_tokens": 8}));
    assert!([json!(" yes"), json!(" no")].contains(&usual), "{usual}");
    let other = ask(json!({"prompt": "And God said", "max_tokens": 8, "grammar": "root ::= \" maybe\""}));
    assert_eq!(other, " maybe");
}

#[test]
fn a_template_from_a_file_replaces_the_models() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("upper.jinja");
    std::fs::write(&file, "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %} [answer]")
        .unwrap();
    let server = Server::start(&bundled(), ["--chat-template-file", file.to_str().unwrap()]);
    let body = json!({"messages": [{"role": "user", "content": "hello"}]});
    assert_eq!(server.post("/apply-template", &body).ok()["prompt"], "[user] hello [answer]");

    // It has no place for tools, and a request with some is not answered as if it had none.
    let tools = json!([{"type": "function", "function": {"name": "now"}}]);
    let body = json!({"messages": body["messages"], "tools": tools, "max_tokens": 4});
    let error = server.post("/v1/chat/completions", &body).error(400);
    assert!(error["message"].as_str().unwrap().contains("does not support tools"), "{error}");
    let body = json!({"messages": body["messages"], "tools": tools, "tool_choice": "none", "max_tokens": 4});
    server.post("/v1/chat/completions", &body).ok();
}

/// Grammars and schemas that are not valid, or that no token follows, are errors of their requests.
#[test]
fn wrong_grammars_and_schemas_are_errors_of_the_request() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let turns = json!([{"role": "user", "content": "a"}]);
    for (grammar, part) in [
        ("root ::= foo", "cannot use the grammar"),
        ("root ::= \"a", "cannot use the grammar"),
        ("x ::= \"a\"", "does not contain a 'root' symbol"),
        ("root ::= root \"a\"", "left recursion"),
        ("root ::= \"a\"{100000}", "cannot use the grammar"),
        ("root ::= [\\u0000]", "grammar"),
    ] {
        for (path, body) in [
            ("/completion", json!({"prompt": "a", "n_predict": 3, "grammar": grammar})),
            ("/v1/completions", json!({"prompt": "a", "max_tokens": 3, "grammar": grammar})),
            ("/v1/chat/completions", json!({"messages": turns, "max_tokens": 3, "grammar": grammar})),
        ] {
            let error = server.post(path, &body).error(400);
            assert!(error["message"].as_str().unwrap().contains(part), "{path} {grammar}: {error}");
            assert_eq!(error["param"], "grammar", "{path} {grammar}");
        }
    }
    for (schema, part) in [
        (json!({"type": "foo"}), "`#/type` is `foo`, which is not a type"),
        (json!({"$ref": "#/x"}), "#/x"),
        (json!({"$ref": "http://localhost:1/x"}), "http"),
    ] {
        for (path, body) in [
            ("/completion", json!({"prompt": "a", "n_predict": 3, "json_schema": schema})),
            ("/v1/completions", json!({"prompt": "a", "max_tokens": 3, "json_schema": schema})),
            ("/v1/chat/completions", json!({"messages": turns, "max_tokens": 3, "json_schema": schema})),
        ] {
            let error = server.post(path, &body).error(400);
            assert!(error["message"].as_str().unwrap().contains(part), "{path} {schema}: {error}");
        }
        let body = json!({"messages": turns, "stream": false, "format": schema});
        assert_eq!(server.post("/api/chat", &body).status, 400);
    }
    server.post("/completion", &json!({"prompt": "a", "n_predict": 1})).ok();
}
