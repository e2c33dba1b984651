//! A server whose weights are lost: a worker that holds half of the layers ends, or stops, while clients
//! wait for answers.

use crate::common::bundled;
use crate::server::{Server, golden};
use crate::workers::Worker;
use serde_json::{Value, json};
use std::io::Read;
use std::net::TcpStream;

/// The rest of a connection.
fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

/// Status of `/health`; `None` if the connection was cut, with the process that had accepted it.
fn health(server: &Server) -> Option<String> {
    use std::io::Write;
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let status = text.split(' ').nth(1)?.to_owned();
    if status == "503" {
        assert!(text.to_lowercase().contains("retry-after: 1\r\n") && text.contains("loading"), "{text}");
    }
    Some(status)
}

/// Clients are told, and the server answers again, with the same tokens.
fn answers_again(lose: impl FnOnce(&mut Option<Worker>)) {
    let worker = Worker::start(&["--memory", "256MiB"]);
    let endpoint = worker.endpoint().to_owned();
    let options = ["-ngl", "3", "--rpc", &endpoint, "--rpc-timeout", "8", "--ctx", "4096", "--parallel", "2"];
    let mut server = Server::start(&bundled(), options);
    let prompt = "In the beginning";
    let ask = |tokens: usize, stream: bool| json!({"prompt": prompt, "max_tokens": tokens, "stream": stream});
    let text = |server: &Server| {
        let answer = server.post("/v1/completions", &ask(12, false)).ok();
        answer["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let expected = golden(prompt, 12);
    assert_eq!(text(&server), expected);
    let long = |stream: bool| ask(4000, stream);
    let mut streamed = server.begin("/v1/completions", &long(true));
    let mut whole = server.begin("/v1/completions", &long(false));
    server.wait_for(|server| server.processing() == 2);
    let mut queued = server.begin("/v1/completions", &long(false));
    server.wait_for(|server| server.waiting() == 1);
    streamed.read_exact(&mut [0; 256]).unwrap();
    let mut worker = Some(worker);
    lose(&mut worker);
    for text in [rest(&mut whole), rest(&mut queued)] {
        assert!(text.starts_with("HTTP/1.1 500 "), "{text}");
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        let error: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert_eq!(error["error"]["code"], "device_lost", "{text}");
    }
    let told = rest(&mut streamed);
    assert!(told.contains("device_lost") && told.contains("the model is being reloaded"), "{told}");
    server.wait_for(|server| match health(server).as_deref() {
        Some("200") => true,
        Some("503") | None => false,
        Some(other) => panic!("{other}"),
    });
    assert_eq!(text(&server), expected);
    assert!(server.is_running());
    server.signal("-TERM");
    let (status, said) = server.ended();
    assert_eq!(status.code(), Some(0), "{said}");
    assert_eq!(said.matches("error: ").count(), 1, "{said}");
    assert!(said.contains("hint: an RPC server ended"), "{said}");
    assert!(said.contains(&format!("RPC server {endpoint}: ")), "{said}");
    assert!(said.contains("the model is loaded without it"), "{said}");
}

#[test]
fn a_worker_that_is_killed_is_done_without() {
    answers_again(|worker| drop(worker.take()));
}

#[test]
fn a_worker_that_is_stopped_is_done_without() {
    answers_again(|worker| worker.as_ref().unwrap().signal(libc::SIGSTOP));
}
