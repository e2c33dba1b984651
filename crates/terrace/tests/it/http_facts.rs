//! What `terrace serve` makes of requests that are unusual, wrong or lies about themselves: a
//! status below 500 or the end of the connection, soon, and nothing of one request is taken for
//! the next one.

use crate::common::bundled;
use crate::server::Server;
use crate::wire::{Received, Wire, get, post};
use serde_json::{Value, json};
use std::io;
use std::time::{Duration, Instant};

/// Longer than the limits that these tests set, and shorter than what happens without the limits.
const SOON: Duration = Duration::from_secs(120);

/// Waits for nothing longer than three seconds.
fn server() -> Server {
    Server::start(&bundled(), ["--idle-timeout", "3", "--body-timeout", "3", "--ctx", "256"])
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With a response of this status.
    Status(u16),
    /// With the end of the connection, without a response.
    Closed,
    /// With either: the server closes the connection while the client still sends, and the system
    /// then may drop the response.
    Cut(u16),
}
use End::{Closed, Cut, Status};

impl End {
    fn is(self, expected: Self) -> bool {
        match expected {
            Cut(status) => [Status(status), Closed].contains(&self),
            expected => self == expected,
        }
    }
}

/// Sends the bytes and returns what comes back. Whatever it is, a request that follows is answered
/// as such, or the connection is closed.
fn outcome(server: &Server, name: &str, bytes: &[u8]) -> (End, Option<Received>) {
    let begin = Instant::now();
    let mut wire = Wire::connect(server);
    // The server may answer, and close the connection, before it has read everything.
    let _ = wire.send(bytes);
    let received = loop {
        match wire.receive() {
            Ok(received) if received.head.status == 100 => {}
            other => break other,
        }
    };
    assert!(begin.elapsed() < SOON, "{name} takes {:?}", begin.elapsed());
    let received = match received {
        Ok(received) => received,
        Err(error) => {
            assert!(is_closed(&error), "{name}: {error}");
            return (Closed, None);
        }
    };
    let _ = wire.send(get("/api/version"));
    match wire.receive() {
        Ok(next) => {
            assert_eq!(next.head.status, 200, "{name}: {next:?}");
            assert!(next.json()["version"].is_string(), "{name}: {next:?}");
        }
        Err(error) => assert!(is_closed(&error), "{name}: {error}"),
    }
    // What the HTTP library refuses by itself has no body.
    if received.head.status >= 400 && !received.body.is_empty() {
        assert!(received.json()["error"]["message"].is_string(), "{name}: {received:?}");
    }
    (Status(received.head.status), Some(received))
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Checks all cases, each on a connection of its own.
fn check(server: &Server, cases: &[(&str, End, Vec<u8>)]) {
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let one = |(name, expected, bytes): &'_ (&str, End, Vec<u8>)| {
            let (end, received) = outcome(server, name, bytes);
            (!end.is(*expected)).then(|| format!("{name}: {end:?}, not {expected:?}: {received:?}"))
        };
        let all: Vec<_> = cases.iter().map(|case| scope.spawn(move || one(case))).collect();
        all.into_iter().filter_map(|case| case.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    server.post("/tokenize", &json!({"content": "a"})).ok();
}

/// A GET request for the health with these lines after the first.
fn health(lines: &str) -> Vec<u8> {
    format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n").into_bytes()
}

/// A GET request for this target.
fn target(target: &[u8]) -> Vec<u8> {
    [b"GET ", target, b" HTTP/1.1\r\nHost: localhost\r\n\r\n"].concat()
}

/// A request to tokenise, with these lines and this body.
fn tokenize(lines: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let head = format!("POST /tokenize HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n");
    [head.as_bytes(), body.as_ref()].concat()
}

/// A request to tokenise, with this body as it is, after `Transfer-Encoding: chunked`.
fn chunked(body: impl AsRef<[u8]>) -> Vec<u8> {
    tokenize("Transfer-Encoding: chunked\r\n", body)
}

/// A request to tokenise with this body, its length, and other lines.
fn sized(lines: &str, body: &[u8]) -> Vec<u8> {
    tokenize(&format!("{lines}Content-Length: {}\r\n", body.len()), body)
}

const JSON: &str = r#"{"content": "a"}"#;

#[test]
fn heads_have_limits_and_lies_in_them_are_refused() {
    let many = |count: usize| health(&"a: b\r\n".repeat(count - 1));
    let large = |size: usize| health(&format!("a: {}\r\n", "x".repeat(size)));
    let path = |size: usize| target(format!("/{}", "x".repeat(size)).as_bytes());
    let cases = [
        ("100 headers", Status(200), many(100)),
        ("101 headers", Status(431), many(101)),
        ("10,000 headers", Cut(431), many(10_000)),
        ("a header of 60 KiB", Status(200), large(60 << 10)),
        ("a header of 1 MiB", Cut(431), large(1 << 20)),
        ("a header of 4 MiB", Cut(431), large(4 << 20)),
        ("a path of 8 KiB", Status(404), path(8 << 10)),
        ("a path of 65,535 bytes", Status(414), path(65_535)),
        ("a path of 1 MiB", Cut(431), path(1 << 20)),
        ("a method of 1 MiB", Cut(431), vec![b'A'; 1 << 20]),
        ("a space before the colon", Status(400), health("a : b\r\n")),
        ("a folded header", Status(400), health("a: b\r\n c\r\n")),
        ("a header without a colon", Status(400), health("a\r\n")),
        ("a header without a name", Status(400), health(": b\r\n")),
        ("a zero in a header", Status(400), health("a: b\0c\r\n")),
        ("a lone CR in a header", Status(400), health("a: b\rc: d\r\n")),
        ("bytes that are not UTF-8 in a header", Status(200), {
            [&b"GET /health HTTP/1.1\r\nHost: localhost\r\na: "[..], b"\xff\xfe\r\n\r\n"].concat()
        }),
        ("bytes that are not UTF-8 as host", Status(403), {
            b"GET /health HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n".to_vec()
        }),
        ("bytes that are not UTF-8 as key", Status(200), {
            [&b"GET /health HTTP/1.1\r\nHost: localhost\r\nAuthorization: "[..], b"\xff\r\n\r\n"].concat()
        }),
        ("bytes that are not UTF-8 as origin", Status(403), {
            [&b"GET /props HTTP/1.1\r\nHost: localhost\r\nOrigin: "[..], b"\xff\r\n\r\n"].concat()
        }),
        ("line breaks alone", Status(200), b"GET /health HTTP/1.1\nHost: localhost\n\n".to_vec()),
        ("empty lines first", Status(200), [&b"\r\n\r\n"[..], get("/health").as_bytes()].concat()),
        ("two hosts", Status(403), health("Host: evil.example\r\n")),
        ("a lower-case method", Status(405), b"get /health HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("an unknown method", Status(405), b"BREW /health HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("no version", Status(400), b"GET /health\r\n\r\n".to_vec()),
        ("version 1.0", Status(200), b"GET /health HTTP/1.0\r\n\r\n".to_vec()),
        ("version 1.0, kept alive", Status(200), {
            b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_vec()
        }),
        ("version 1.2", Status(400), b"GET /health HTTP/1.2\r\nHost: localhost\r\n\r\n".to_vec()),
        ("version 3", Status(400), b"GET /health HTTP/3\r\nHost: localhost\r\n\r\n".to_vec()),
        ("the start of HTTP/2", Closed, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        ("the start of TLS", Status(400), b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec()),
        ("half a head", Closed, b"GET /health HT".to_vec()),
        ("nothing", Closed, Vec::new()),
        ("an upgrade to a web socket", Status(200), {
            health("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n")
        }),
        (
            "an upgrade to HTTP/2",
            Status(200),
            health("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"),
        ),
        ("a range", Status(200), health("Range: bytes=0-0,5-\r\nIf-Match: *\r\n")),
    ];
    check(&server(), &cases);
}

#[test]
fn targets_may_have_any_form() {
    let own = |path: &str| target(path.as_bytes());
    let cases = [
        ("absolute", Status(200), own("http://localhost/health")),
        ("absolute, of another host", Status(403), own("http://evil.example/health")),
        ("absolute, of another host, with this one's name as user", Status(403), {
            own("http://localhost@evil.example/health")
        }),
        ("absolute, with another scheme", Status(200), own("gopher://localhost/health")),
        ("absolute, without a path", Status(200), own("http://localhost")),
        ("all, to be asked what is possible", Status(200), {
            b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()
        }),
        ("all", Status(404), own("*")),
        ("a tunnel", Status(404), b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("without a slash, which is a host", Status(403), own("health")),
        ("nothing", Status(400), own("")),
        ("two spaces", Status(400), own(" /health")),
        ("a query", Status(200), own("/health?a=b&%ff=%&&&")),
        ("a control character", Status(400), own("/health?\u{7f}")),
        ("a fragment", Status(200), own("/health#top")),
        ("two slashes", Status(404), own("//health")),
        ("a slash at the end", Status(200), own("/health/")),
        ("a parent", Status(404), own("/../../etc/passwd")),
        ("an encoded slash", Status(404), own("/v1%2fmodels")),
        ("raw bytes that are not UTF-8", Status(400), target(b"/v1/models/\xff\xfe")),
        ("raw UTF-8", Status(404), own("/v1/models/ä")),
        ("encoded bytes that are not UTF-8", Status(400), own("/v1/models/%ff%fe")),
        ("half an escape", Status(404), own("/v1/models/%f")),
        ("an encoded zero", Status(404), own("/v1/models/%00")),
        ("a model's name with slashes", Status(404), own("/v1/models/a/b/../c")),
    ];
    check(&server(), &cases);
}

#[test]
fn bodies_are_as_long_as_they_say_or_refused() {
    let long = "x".repeat(17 << 10);
    let cases = [
        ("chunks", Status(200), chunked(format!("8\r\n{}\r\n8\r\n{}\r\n0\r\n\r\n", &JSON[..8], &JSON[8..]))),
        ("chunks, with extensions", Status(200), chunked(format!("10;a=b;c\r\n{JSON}\r\n0;d\r\n\r\n"))),
        ("chunks, with trailers", Status(200), chunked(format!("10\r\n{JSON}\r\n0\r\na: b\r\nc: d\r\n\r\n"))),
        ("chunks, with trailers that change the length", Status(200), {
            chunked(format!("10\r\n{JSON}\r\n0\r\nContent-Length: 0\r\nHost: evil.example\r\n\r\n"))
        }),
        ("a chunk that is longer", Status(400), chunked(format!("8\r\n{JSON}\r\n0\r\n\r\n"))),
        ("a chunk that is shorter", Status(408), chunked(format!("40\r\n{JSON}\r\n0\r\n\r\n"))),
        ("a chunk without end", Status(408), chunked(format!("10\r\n{JSON}"))),
        ("no last chunk", Status(408), chunked(format!("10\r\n{JSON}\r\n"))),
        ("a size that is no number", Status(400), chunked("zz\r\n")),
        ("a size of many zeros, without end", Status(408), chunked("0".repeat(1 << 20))),
        ("a negative size", Status(400), chunked("-1\r\n")),
        ("a size with a prefix", Status(400), chunked(format!("0x10\r\n{JSON}\r\n0\r\n\r\n"))),
        ("a size beyond 64 bits", Status(400), chunked("FFFFFFFFFFFFFFFFF\r\n")),
        ("a size of 64 bits", Status(408), chunked("FFFFFFFFFFFFFFFE\r\n")),
        ("long extensions", Status(400), chunked(format!("10;{long}\r\n{JSON}\r\n0\r\n\r\n"))),
        ("many extensions", Status(400), {
            chunked(format!("1;{}\r\n \r\n", "x".repeat(1000)).repeat(40) + "0\r\n\r\n")
        }),
        ("long trailers", Status(400), chunked(format!("10\r\n{JSON}\r\n0\r\na: {long}\r\n\r\n"))),
        ("many trailers", Status(400), {
            chunked(format!("10\r\n{JSON}\r\n0\r\n{}\r\n", "a: b\r\n".repeat(1000)))
        }),
        ("trailers without end", Status(408), chunked(format!("10\r\n{JSON}\r\n0\r\na: b\r\n"))),
        ("a trailer that is none", Status(400), chunked(format!("10\r\n{JSON}\r\n0\r\n\0\r\n\r\n"))),
        ("chunks in version 1.0", Status(400), {
            format!("POST /tokenize HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{JSON}\r\n0\r\n\r\n")
                .into()
        }),
        ("an unknown encoding", Status(400), tokenize("Transfer-Encoding: rot13\r\n", JSON)),
        ("chunks, then an unknown encoding", Status(400), {
            tokenize("Transfer-Encoding: chunked, rot13\r\n", JSON)
        }),
        ("chunks twice", Status(200), {
            tokenize("Transfer-Encoding: chunked, chunked\r\n", format!("10\r\n{JSON}\r\n0\r\n\r\n"))
        }),
        ("a length, then chunks", Status(200), {
            let lines = "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n";
            tokenize(lines, format!("10\r\n{JSON}\r\n0\r\n\r\n"))
        }),
        ("chunks, then a length", Status(200), {
            let lines = "Transfer-Encoding: chunked\r\nContent-Length: 999999999\r\n";
            tokenize(lines, format!("10\r\n{JSON}\r\n0\r\n\r\n"))
        }),
        ("the same length twice", Status(200), sized("Content-Length: 16\r\n", JSON.as_bytes())),
        ("two lengths", Status(400), sized("Content-Length: 15\r\n", JSON.as_bytes())),
        ("a length that is no number", Status(400), tokenize("Content-Length: ten\r\n", JSON)),
        ("a negative length", Status(400), tokenize("Content-Length: -1\r\n", JSON)),
        ("a length with a sign", Status(400), tokenize("Content-Length: +16\r\n", JSON)),
        ("a length beyond 64 bits", Status(400), tokenize("Content-Length: 99999999999999999999\r\n", JSON)),
        ("a length of 63 bits", Status(413), tokenize("Content-Length: 9223372036854775807\r\n", JSON)),
        ("a length that is too large by one", Status(408), tokenize("Content-Length: 17\r\n", JSON)),
        (
            "a length that is too small",
            Status(400),
            tokenize("Content-Length: 15\r\nConnection: close\r\n", JSON),
        ),
        ("no length", Status(400), tokenize("", "")),
        ("a body for a GET", Status(200), health("Content-Length: 16\r\n\r\n{\"content\": \"a\"}")),
        ("a body for a path that is not there", Status(404), {
            format!("POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n{JSON}").into()
        }),
        ("an announced body for a path that is not there", Status(404), {
            b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nx".to_vec()
        }),
        ("another expectation", Status(200), sized("Expect: the unexpected\r\n", JSON.as_bytes())),
        ("version 1.0 expects", Status(200), {
            format!("POST /tokenize HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 16\r\n\r\n{JSON}")
                .into()
        }),
    ];
    check(&server(), &cases);
}

#[test]
fn a_large_body_is_refused_in_pieces_of_any_size() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    for (size, count) in [(16, 250_000), (5000, 1000), (5_000_000, 1)] {
        let chunk = format!("{size:x}\r\n{}\r\n", " ".repeat(size));
        let (end, received) = outcome(&server, "a large body", &chunked(chunk.repeat(count)));
        assert!(end.is(Cut(413)), "{size}: {received:?}");
    }
}

#[test]
fn bodies_are_json_in_utf8() {
    let utf16: Vec<u8> = JSON.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let gzip = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xabV\xca\xcf+I\xcd+Q\xb2RPJT\xaa\x05\x00";
    let form = b"content=a&add_special=true";
    let parts = b"--x\r\nContent-Disposition: form-data; name=\"content\"\r\n\r\na\r\n--x--\r\n";
    let cases = [
        ("no type", Status(200), sized("", JSON.as_bytes())),
        ("text", Status(200), sized("Content-Type: text/plain\r\n", JSON.as_bytes())),
        ("a type that is none", Status(200), sized("Content-Type: ;;;\r\n", JSON.as_bytes())),
        ("a form", Status(400), sized("Content-Type: application/x-www-form-urlencoded\r\n", form)),
        ("a form in parts", Status(400), sized("Content-Type: multipart/form-data; boundary=x\r\n", parts)),
        ("UTF-16", Status(400), sized("Content-Type: application/json; charset=utf-16\r\n", &utf16)),
        ("gzip that is cut off", Status(400), sized("Content-Encoding: gzip\r\n", gzip)),
        ("gzip that is none", Status(400), sized("Content-Encoding: gzip\r\n", JSON.as_bytes())),
        ("another coding", Status(415), sized("Content-Encoding: br\r\n", JSON.as_bytes())),
        ("a byte order mark", Status(400), sized("", "\u{feff}{\"content\": \"a\"}".as_bytes())),
        ("bytes that are not UTF-8", Status(400), sized("", b"{\"content\": \"\xff\"}")),
        ("half a surrogate", Status(400), sized("", br#"{"content": "\ud800"}"#)),
        ("two objects", Status(400), sized("", b"{\"content\": \"a\"}{}")),
        ("an unreadable answer is accepted alone", Status(200), {
            sized("Accept: image/png\r\nAccept-Encoding: identity;q=0, *;q=0\r\n", JSON.as_bytes())
        }),
    ];
    check(&server(), &cases);
}

#[test]
fn a_body_is_asked_for_if_it_will_be_read() {
    let server = server();
    let ask = |lines: &str| {
        let mut wire = Wire::connect(&server);
        wire.send(tokenize(&format!("Expect: 100-continue\r\n{lines}"), "")).unwrap();
        let head = wire.head().unwrap();
        (wire, head.status)
    };
    for lines in ["Content-Length: 16\r\n", "Transfer-Encoding: chunked\r\n"] {
        let (mut wire, status) = ask(lines);
        assert_eq!(status, 100);
        let body = if lines.contains("16") { JSON.to_owned() } else { format!("10\r\n{JSON}\r\n0\r\n\r\n") };
        wire.send(body).unwrap();
        assert_eq!(wire.receive().unwrap().head.status, 200);
        wire.send(get("/health")).unwrap();
        assert_eq!(wire.receive().unwrap().head.status, 200);
    }
    // It would be too large, so nothing of it is sent.
    assert_eq!(ask("Content-Length: 99999999\r\n").1, 413);
    // It was asked for, and does not come.
    let (mut wire, status) = ask("Content-Length: 16\r\n");
    assert_eq!((status, wire.receive().unwrap().head.status), (100, 408));
}

#[test]
fn every_route_answers_every_method() {
    let server = server();
    let document = server.get("/openapi.json").ok();
    let routes = document["paths"].as_object().unwrap();
    assert!(routes.len() >= 25);
    for (path, methods) in routes {
        let path = path.replace("{name}", "tiny-moe-Q4_K").replace("{path}", "main.js");
        let [is_get, is_post, is_delete] =
            ["get", "post", "delete"].map(|method| methods.get(method).is_some());
        let mut wire = Wire::connect(&server);
        for method in ["OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND"] {
            if method == "DELETE" && is_delete {
                continue;
            }
            wire.send(get(&path).replacen("GET", method, 1)).unwrap();
            let received = wire.receive().unwrap();
            let expected = if method == "OPTIONS" { 200 } else { 405 };
            assert_eq!(received.head.status, expected, "{method} {path}: {received:?}");
            if expected == 405 {
                let error = &received.json()["error"];
                // Ollama's errors are texts.
                let message = if path.starts_with("/api/") { error } else { &error["message"] };
                assert!(message.is_string(), "{method} {path}: {received:?}");
                let allowed = received.head.header("allow").unwrap_or_else(|| panic!("{method} {path}"));
                let expected = match (is_get, is_post) {
                    (true, true) => "GET,HEAD,POST",
                    (true, false) if is_delete => "GET,HEAD,DELETE",
                    (true, false) => "GET,HEAD",
                    _ if is_delete => "DELETE",
                    _ => "POST",
                };
                assert_eq!(allowed, expected, "{path}");
            }
        }
        if is_get != is_post {
            let other = if is_get { post(&path, &json!({})) } else { get(&path) };
            wire.send(other).unwrap();
            assert_eq!(wire.receive().unwrap().head.status, 405, "{path}");
        }
        // The same head without the body.
        wire.send(get(&path).replacen("GET", "HEAD", 1)).unwrap();
        let head = wire.head().unwrap();
        let expected = match &path[..] {
            // There are no copies that could be exchanged.
            "/moe-hot-cache" => 400,
            // The server has no directory for them.
            path if is_get && (path.starts_with("/v1/batches") || path.starts_with("/v1/files")) => 501,
            _ if is_get => 200,
            _ => 405,
        };
        assert_eq!(head.status, expected, "HEAD {path}");
        wire.send(get("/api/version")).unwrap();
        let next = wire.receive().unwrap();
        assert!(next.json()["version"].is_string(), "after HEAD {path}: {next:?}");
    }
    let page: Value = server.get("/health").ok();
    assert_eq!(page["status"], "ok");
}
