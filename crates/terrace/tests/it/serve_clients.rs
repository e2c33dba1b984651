//! Clients that keep `terrace serve` waiting take nothing from other clients.

use crate::common::bundled;
use crate::server::Server;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use terrace_testkit::{Arch, Spec};

/// Longer than any limit that these tests set, and shorter than what happens without the limits.
const SOON: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// A model with random weights that never ends its text.
fn endless(dir: &Path) -> PathBuf {
    terrace_testkit::write(&Spec::new(Arch::Qwen3Moe), dir.join("endless.gguf")).unwrap()
}

/// A server with one server slot, for answers that take minutes. The model's name is part of each
/// piece, so that an unread answer fills the buffers of its connection at once.
fn wordy(dir: &Path, more: &[&str]) -> Server {
    let name = "x".repeat(120_000);
    let args = ["--ctx", "65536", "--stream", "none", "--parallel", "1", "--alias", &name];
    Server::start(&endless(dir), args.iter().chain(more))
}

/// Begins an answer and reads nothing of it; returns when the server slot is free again.
#[track_caller]
fn nothing_is_read(server: &Server) -> (TcpStream, Duration) {
    let stream = server.begin("/v1/completions", &json!({"prompt": "a", "stream": true}));
    server.wait_for(|server| server.processing() == 1);
    let begin = Instant::now();
    server.wait_for(|server| server.processing() == 0 || begin.elapsed() > SOON);
    (stream, begin.elapsed())
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// Everything until the server closes the connection.
#[track_caller]
fn rest(mut stream: &TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("it stays open: {error}"),
        _ => String::from_utf8_lossy(&bytes).into_owned(),
    }
}

#[test]
fn an_answer_that_nobody_reads_ends_at_its_time_limit() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = wordy(dir.path(), &["--timeout", "3"]);
    let (stream, took) = nothing_is_read(&server);
    assert!(took < SOON, "the slot is taken after {took:?}");
    // What was sent can still be read, and its last part says why there is no more.
    let text = rest(&stream);
    let last = text.lines().rfind(|line| line.starts_with("data: ")).unwrap();
    assert!(last.contains("\"code\":\"timeout\""), "{last}");
}

#[test]
fn an_answer_that_nobody_reads_ends_when_nothing_can_be_sent() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = wordy(dir.path(), &["--write-timeout", "2"]);
    let (stream, took) = nothing_is_read(&server);
    assert!(took < SOON, "the slot is taken after {took:?}");
    // The connection is closed in the middle of a piece.
    assert!(!rest(&stream).contains("[DONE]"));
}

#[test]
fn connections_that_wait_for_nothing_are_closed() {
    let limits = ["--idle-timeout", "1", "--body-timeout", "1", "--max-connections", "4"];
    let server = Server::start(&bundled(), limits);
    for start in ["", "GET /hea", "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "] {
        let mut slow = connect(&server);
        slow.write_all(start.as_bytes()).unwrap();
        rest(&slow);
    }
    // Between two requests.
    let mut idle = connect(&server);
    idle.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    assert!(rest(&idle).starts_with("HTTP/1.1 200"));
    // Within a body.
    let mut slow = connect(&server);
    slow.write_all(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{\"").unwrap();
    let text = rest(&slow);
    assert!(text.starts_with("HTTP/1.1 408") && text.contains("slow_body"), "{text}");
    // Each of these would hold a connection for ever, and there are four.
    let all: Vec<TcpStream> = (0..16).map(|_| connect(&server)).collect();
    server.wait_for(|server| server.post("/tokenize", &json!({"content": "a"})).status == 200);
    drop(all);
}

#[test]
fn without_keys_a_server_is_called_by_its_own_names() {
    let ask = |server: &Server, host: &str| {
        let mut stream = connect(server);
        write!(
            stream,
            "GET /v1/models HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        rest(&stream)
    };
    let server = Server::start(&bundled(), ["--allowed-host", "box.lan"]);
    for own in [&server.address, "localhost:1", "[::1]:8080", "Box.LAN", "box.lan:80"] {
        let text = ask(&server, own);
        assert!(text.starts_with("HTTP/1.1 200"), "{own}: {text}");
    }
    // A page of this site has the same origin as the request.
    let text = ask(&server, "evil.example:8080");
    assert!(text.starts_with("HTTP/1.1 403"), "{text}");
    let body: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains("evil.example") && message.contains("--allowed-host"), "{message}");
    // A page cannot know the key.
    let server = Server::start(&bundled(), ["--api-key", "k"]);
    assert!(ask(&server, "evil.example").starts_with("HTTP/1.1 200"));
}

#[test]
fn what_is_made_of_a_request_is_not_much_larger_than_it() {
    let server = Server::start(&bundled(), ["--strict"]);
    let grown = |bound: u64, ask: &dyn Fn()| {
        let before = server.peak_memory();
        ask();
        let grown = server.peak_memory() - before;
        assert!(grown < bound * MIB, "{} MiB more", grown / MIB);
    };
    // Each object in memory has room for eleven fields.
    grown(16, &|| {
        let objects = vec![r#"{"":0}"#; 250_000].join(",");
        server.post_bytes("/v1/completions", format!("{{\"prompt\":[{objects}]}}").as_bytes()).error(400);
    });
    // A name is compared with others, and quoted.
    grown(32, &|| {
        let body = format!("{{\"prompt\":\"a\",\"{}\":1}}", "x".repeat(1_900_000));
        let reply = server.post_bytes("/v1/completions", body.as_bytes());
        reply.error(400);
        assert!(reply.text.len() < 4096, "{} bytes", reply.text.len());
    });
    // Tokens, and their texts as well.
    let text = "a b ".repeat(150_000);
    let body = |pieces: bool| json!({"content": text, "with_pieces": pieces});
    let plain = server.post("/tokenize", &body(false)).ok()["tokens"].as_array().unwrap().clone();
    assert!(plain.len() > 250_000, "{}", plain.len());
    grown(64, &|| {
        let pieces = server.post("/tokenize", &body(true)).ok()["tokens"].as_array().unwrap().clone();
        assert!(pieces.iter().map(|piece| &piece["id"]).eq(&plain));
        let whole: String = pieces.iter().map(|piece| piece["piece"].as_str().unwrap()).collect();
        assert_eq!(whole.trim(), text.trim());
    });
    // A body larger than any prompt needs is not read.
    let mut stream = connect(&server);
    write!(stream, "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15000000\r\n\r\n").unwrap();
    assert!(rest(&stream).starts_with("HTTP/1.1 413"));
}

#[test]
fn bodies_wait_for_memory_and_small_ones_do_not_wait_for_them() {
    let server = Server::start(&bundled(), ["--body-memory", "16MiB"]);
    let before = server.peak_memory();
    // Many large bodies, each without its end.
    let length = 2 << 20;
    let head = format!("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    let part = vec![b' '; length - 1];
    let send = |_| {
        let mut stream = connect(&server);
        stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        // What the server does not read does not fit in the buffers.
        let _ = stream.write_all(&part);
        stream
    };
    let streams: Vec<TcpStream> = (0..64).map(send).collect();
    server.post("/tokenize", &json!({"content": "a"})).ok();
    let grown = server.peak_memory() - before;
    assert!(grown < 48 * MIB, "{} MiB more", grown / MIB);
    // A client that disconnects returns its share.
    drop(streams);
    server.post("/tokenize", &json!({"content": "a ".repeat(100_000)})).ok();
}

/// The option that the 403 recommends is understood.
#[test]
fn applications_and_this_machine_may_use_the_server_and_others_by_name() {
    let from = |server: &Server, origin: &str, host: &str| {
        let headers = [("origin", origin), ("host", host), ("content-type", "application/json")];
        let body = json!({"prompt": "a", "max_tokens": 1}).to_string();
        server.request("POST", "/v1/completions", &headers, &body)
    };
    let server = Server::start(&bundled(), ["--ctx", "128"]);
    for origin in ["app://obsidian.md", "vscode-webview://0abc", "http://localhost:5173", "tauri://localhost"]
    {
        let reply = from(&server, origin, "localhost");
        reply.ok();
        assert_eq!(reply.header("access-control-allow-origin"), origin);
    }
    let mut recommended = Vec::new();
    for origin in ["chrome-extension://abcdef", "null", "https://example.org"] {
        let error = from(&server, origin, "localhost").error(403);
        let option = format!("--cors-origin {origin}");
        assert!(error["message"].as_str().unwrap().contains(&option), "{error}");
        recommended.extend(["--cors-origin", origin]);
    }
    let get = |host: &str| server.request("GET", "/v1/models", &[("host", host)], "").status;
    for host in ["host.docker.internal:8080", "box.local", "gateway.internal"] {
        assert_eq!(get(host), 200, "{host}");
    }
    for host in ["evil.example", "internal", "local.evil.example"] {
        assert_eq!(get(host), 403, "{host}");
    }
    // Whoever is in the same network may have the page.
    assert_eq!(from(&server, "http://box.local", "box.local").status, 403);
    drop(server);
    let server = Server::start(&bundled(), [&["--ctx", "128"], &recommended[..]].concat());
    for origin in ["chrome-extension://abcdef", "null", "https://example.org"] {
        from(&server, origin, "localhost").ok();
    }
}
