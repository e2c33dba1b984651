//! Processes that apply chat templates, stopped or looping.

use crate::common::bundled;
use crate::server::Server;
use serde_json::json;
use std::io::{BufRead, BufReader, Read};
use std::process::Command;
use std::thread;
use std::time::Duration;
use terrace_platform::process::Observed;
use terrace_testkit::write_edited;

/// A server of the bundled model with another template.
fn start(template: &str, args: &[&str]) -> (Server, tempfile::TempDir) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let model = dir.path().join("model.gguf");
    write_edited(&bundled(), &model, &[("tokenizer.chat_template", template)]).unwrap();
    (Server::start(&model, args), dir)
}

/// Stops all processes that the server has started. A busy machine takes a while to carry out the signal.
fn stop(server: &Server) {
    let children = server.children();
    assert!(!children.is_empty());
    for child in children {
        assert!(Command::new("kill").args(["-STOP", &child.to_string()]).status().unwrap().success());
        while Observed::of(child).is_some_and(|seen| !seen.stopped) {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_stopped_process_is_not_waited_for() {
    let (server, _dir) = start(include_str!("tools.jinja"), &["--ctx", "2048"]);
    let chat = |tokens: u32, stream: bool| json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": tokens, "stream": stream, "ignore_eos": true});
    server.post("/v1/chat/completions", &chat(1, false)).ok();
    stop(&server);
    server.post("/v1/chat/completions", &chat(1, false)).ok();

    // The one that reads a running answer: the answer must not look complete.
    let ends = (0..5).map(|_| {
        let mut stream = BufReader::new(server.begin("/v1/chat/completions", &chat(1900, true)));
        while !stream.by_ref().lines().next().unwrap().unwrap().contains("content") {}
        stop(&server);
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        rest
    });
    // One that had ended before it was stopped shows nothing.
    let mut cut = ends.filter(|rest| !rest.contains("[DONE]"));
    let rest = cut.next().expect("an answer that was not over");
    assert!(rest.contains("\"error\"") && rest.contains("10 s"), "{rest}");
    server.post("/v1/chat/completions", &chat(1, false)).ok();
}

#[test]
fn a_template_that_loops_does_not_delay_the_server() {
    let template = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% if a < 0 %}x{% endif %}{% endfor %}{% endfor %}{% endfor %}";
    let (server, _dir) = start(template, &["--ctx", "256"]);
    assert_eq!(server.children().len(), 1, "the server is ready while the template is being parsed");
    server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 1})).ok();
}
