//! Chat templates that take memory, time or stack without end are refused, and their program goes on.

use crate::common::{bundled, failure, run};
use crate::server::Server;
use serde_json::json;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use terrace_testkit::{thorough, write_edited};

/// Templates by what they take, and part of the error. The first message's text chooses one.
const GREEDY: [(&str, &str, &str); 17] = [
    ("doubled text", "{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}", "MiB"),
    ("added text", "{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}", "MiB"),
    (
        "doubled lists",
        "{% for i in range(40) %}{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l|list|length }}",
        "",
    ),
    (
        "lists without end",
        "{% for i in range(32) %}{% set ns.l = ns.l + ns.l %}{% endfor %}{{ ns.l|sum }}",
        "",
    ),
    (
        "long texts",
        "{% for i in range(20) %}{% set ns.l = ns.l + ['x' * (90000000 + i)] %}{% endfor %}{{ ns.l|length }}",
        "MiB",
    ),
    ("long lists", "{{ range(99000000)|list|length }}", ""),
    ("numbers", "{{ range(2000000000)|list|length }}", ""),
    ("recursion", "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "recurs"),
    ("wide numbers", "{{ '%2000000000d'|format(1) }}", ""),
    ("wide fields", "{{ '{:>2000000000}'.format(1) }}", ""),
    (
        "replaced text",
        "{% for i in range(12) %}{% set ns.x = ns.x|replace('x', 'xxxxxxxxxx') %}{% endfor %}{{ ns.x }}",
        "it takes more than",
    ),
    (
        "replaced by method",
        "{% for i in range(12) %}{% set ns.x = ns.x.replace('x', 'xxxxxxxxxx') %}{% endfor %}{{ ns.x }}",
        "it takes more than",
    ),
    ("indentation", "{{ ('x\n' * 1000000)|indent(1000000) }}", "MiB"),
    ("indented JSON", "{{ range(100000)|list|tojson(indent=1000000) }}", ""),
    (
        "loops",
        "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}x{% endfor %}{% endfor %}{% endfor %}",
        "",
    ),
    (
        "nested lists",
        "{% for a in range(1000) %}{% for b in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}{% endfor %}{{ ns.l|tojson }}",
        "",
    ),
    ("long output", "{% for a in range(1000) %}{{ 'x' * 90000 }}{% endfor %}", "it "),
];

/// The bundled model with this template.
fn model(dir: &TempDir, template: &str) -> PathBuf {
    let model = dir.path().join("model.gguf");
    write_edited(&bundled(), &model, &[("tokenizer.chat_template", template)]).unwrap();
    model
}

#[test]
fn greedy_templates_end_no_server() {
    let dir = TempDir::new().unwrap();
    let mut template =
        String::from("{% set ns = namespace(x='x', l=[1]) %}{% set what = messages[0].content %}");
    for (what, greedy, _) in GREEDY {
        template += &format!("{{% if what == '{what}' %}}{greedy}{{% endif %}}");
    }
    template += "[{{ what }}]";
    let server = Server::start(&model(&dir, &template), ["--ctx", "256"]);
    let ask = |what: &str| {
        server.post("/apply-template", &json!({"messages": [{"role": "user", "content": what}]}))
    };
    assert_eq!(ask("Hi").ok()["prompt"], "[Hi]");
    let before = server.peak_memory();
    // Most take as long as they may.
    for (what, _, error) in GREEDY.into_iter().step_by(thorough(3, 1)) {
        let reply = ask(what);
        // Some have an end that is just far away, and some are as small as the engine makes them.
        if error.is_empty() && reply.status == 200 {
            assert!(reply.text.len() < 1 << 20, "{what}");
        } else {
            let message = reply.error(400)["message"].to_string();
            eprintln!("{what}: {message}");
            assert!(message.contains("cannot apply the model's chat template"), "{what}: {message}");
            assert!(message.contains(error), "{what}: {message}");
        }
        assert_eq!(ask("Hi").ok()["prompt"], "[Hi]", "after {what}");
    }
    // A conversation's text is in it a few times, and nothing of what the templates made.
    let after = server.peak_memory();
    assert!(after < before + (128 << 20), "{before} bytes, then {after}");
}

/// The error of `run --chat` with this template.
#[track_caller]
fn chat(template: &str) -> String {
    let dir = TempDir::new().unwrap();
    let model = model(&dir, template);
    failure(&run([Path::new("run"), &model, "--chat".as_ref(), "-p".as_ref(), "Hi".as_ref()]), 1)
}

#[test]
fn run_refuses_greedy_templates() {
    let [(_, doubled, _), ..] = GREEDY;
    let error = chat(&format!("{{% set ns = namespace(x='x') %}}{doubled}"));
    // Templates are tried when they are parsed, a few times.
    assert!(error.contains("it takes more than"), "{error}");
    let error = chat(&format!("{{{{ {}1{} }}}}", "(".repeat(200_000), ")".repeat(200_000)));
    assert!(error.contains("chat template"), "{error}");
    let error = chat(&"{% if true %}".repeat(100_000));
    assert!(error.contains("chat template"), "{error}");
}
