//! Clients of `terrace serve` that send in small pieces, send ahead, or leave without a word.

use crate::common::bundled;
use crate::server::{Server, golden};
use crate::wire::{Wire, get, post};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use terrace_testkit::{Arch, Spec};

const PROMPT: &str = "In the beginning God created the heaven and the earth.";

/// A model with random weights that never ends its text.
fn endless(dir: &Path) -> PathBuf {
    terrace_testkit::write(&Spec::new(Arch::Qwen3Moe), dir.join("endless.gguf")).unwrap()
}

/// A server with one server slot, for answers that take minutes.
fn busy(dir: &Path) -> Server {
    Server::start(&endless(dir), ["--ctx", "32768", "--stream", "none", "--parallel", "1"])
}

#[test]
fn requests_may_come_byte_by_byte() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let body = json!({"prompt": PROMPT, "max_tokens": 8, "cache_prompt": false});
    let expected = server.post("/v1/completions", &body).ok()["choices"].clone();
    let mut wire = Wire::connect(&server);
    // On the same connection, twice.
    for _ in 0..2 {
        for byte in post("/v1/completions", &body).bytes() {
            wire.send([byte]).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(wire.receive().unwrap().json()["choices"], expected);
    }
    let body = body.to_string();
    wire.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    for byte in body.chars() {
        wire.send(format!("1\r\n{byte}\r\n")).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    wire.send("0\r\n\r\n").unwrap();
    assert_eq!(wire.receive().unwrap().json()["choices"], expected);
}

#[test]
fn requests_sent_ahead_are_answered_in_order() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let text = golden(PROMPT, 16);
    let body = |more: Value| {
        let mut body = json!({"prompt": PROMPT, "max_tokens": 16, "cache_prompt": false});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let all = [
        get("/health"),
        post("/tokenize", &json!({"content": "a b"})),
        post("/v1/completions", &body(json!({"temperature": "hot"}))),
        post("/v1/completions", &body(json!({"stream": true}))),
        get("/nothing"),
        post("/v1/completions", &body(json!({}))),
        get("/health").replacen("GET", "HEAD", 1),
        post("/completion", &body(json!({"stream": true}))),
        get("/v1/models").replacen("Host", "Connection: close\r\nHost", 1),
        get("/health"),
    ];
    let mut wire = Wire::connect(&server);
    wire.send(all.concat()).unwrap();
    let next = |wire: &mut Wire, status: u16| {
        let received = wire.receive().unwrap();
        assert_eq!(received.head.status, status, "{received:?}");
        received
    };
    let pieces = |text: &str, piece: &dyn Fn(&Value) -> String| -> String {
        let data =
            text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
        data.map(|data| piece(&serde_json::from_str(data).unwrap())).collect()
    };
    assert_eq!(next(&mut wire, 200).json()["status"], "ok");
    assert!(!next(&mut wire, 200).json()["tokens"].as_array().unwrap().is_empty());
    assert_eq!(next(&mut wire, 400).json()["error"]["param"], "temperature");
    let stream = next(&mut wire, 200).body;
    let choice = |event: &Value| event["choices"][0]["text"].as_str().unwrap_or_default().to_owned();
    assert_eq!(pieces(&stream, &choice), text);
    assert_eq!(next(&mut wire, 404).json()["error"]["type"], "not_found_error");
    assert_eq!(next(&mut wire, 200).json()["choices"][0]["text"], text);
    assert_eq!(wire.head().unwrap().status, 200);
    let stream = next(&mut wire, 200).body;
    assert_eq!(pieces(&stream, &|event| event["content"].as_str().unwrap().to_owned()), text);
    assert_eq!(next(&mut wire, 200).json()["data"][0]["object"], "model");
    assert_eq!(wire.rest().unwrap(), "", "the last request is not answered");
}

#[test]
fn small_bodies_do_not_wait_for_large_ones_whether_or_not_they_tell_their_length() {
    let server = Server::start(&bundled(), ["--body-memory", "16MiB", "--body-timeout", "3600"]);
    let head = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    // Large bodies without an end, for which the memory is too small.
    let large = |_| {
        let mut wire = Wire::connect(&server);
        wire.send(format!("{head}20000\r\n{}\r\n", " ".repeat(0x20000))).unwrap();
        wire
    };
    let large: Vec<Wire> = (0..64).map(large).collect();
    let body = r#"{"content": "a"}"#;
    let mut small = Wire::connect(&server);
    small.send(format!("{head}10\r\n{body}\r\n0\r\n\r\n")).unwrap();
    assert_eq!(small.receive().unwrap().head.status, 200);
    drop(large);
    let mut whole = Wire::connect(&server);
    whole.send(format!("{head}20000\r\n{}\r\n10\r\n{body}\r\n0\r\n\r\n", " ".repeat(0x20000))).unwrap();
    assert_eq!(whole.receive().unwrap().head.status, 200);
}

/// How a client leaves.
type Leave = fn(Wire) -> Option<Wire>;

const LEAVES: [(&str, Leave); 3] = [
    ("disconnects", |wire| {
        drop(wire);
        None
    }),
    ("resets", |wire| {
        wire.reset();
        None
    }),
    // A client that has left looks like this too, until something is sent to it.
    ("ends its side", |wire| {
        wire.finish();
        Some(wire)
    }),
];

#[test]
fn a_client_that_leaves_frees_its_place_whatever_it_sent_ahead() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = busy(dir.path());
    let ask = |stream: bool| post("/v1/completions", &json!({"prompt": PROMPT, "stream": stream}));
    let aheads = ["".to_owned(), "G".to_owned(), get("/health"), ask(true)];
    for stream in [false, true] {
        for ahead in &aheads {
            for (how, leave) in LEAVES {
                eprintln!("a client {how}; stream: {stream}; ahead: {ahead:?}");
                let begin = |place: &dyn Fn(&Server) -> bool| {
                    let mut wire = Wire::connect(&server);
                    wire.send(ask(stream) + ahead).unwrap();
                    server.wait_for(place);
                    wire
                };
                let working = begin(&|server| server.processing() == 1);
                let waiting = begin(&|server| server.waiting() == 1);
                let waiting = leave(waiting);
                server.wait_for(|server| server.waiting() == 0);
                let working = leave(working);
                server.wait_for(|server| server.processing() == 0);
                drop((working, waiting));
            }
        }
    }
}

#[test]
fn clients_that_vanish_are_noticed() {
    let server = Server::start(&bundled(), ["--ctx", "256", "--write-timeout", "77"]);
    let mut wire = Wire::connect(&server);
    wire.send(get("/health")).unwrap();
    wire.receive().unwrap();
    // A lost machine cannot be shown on this one. The system notices it when the server's side of
    // the connection has a timer for that ("02", keep-alive), once nothing is left to be sent.
    let port = |address: std::net::SocketAddr| format!("0100007F:{:04X}", address.port());
    let ends = [port(wire.stream().peer_addr().unwrap()), port(wire.stream().local_addr().unwrap())];
    server.wait_for(|_| {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let mut lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        lines.find(|line| line[1..3] == ends).unwrap()[5].starts_with("02:")
    });
}
