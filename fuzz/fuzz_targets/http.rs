//! Requests to every endpoint, through the router to a loaded model and back: a line with method
//! and path, lines with headers up to an empty one, and the body.

#![no_main]

use axum::body::Body;
use axum::http::Request;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use terrace_fuzz::{Answer, Scratch, Service};

static SERVICE: LazyLock<Service> = LazyLock::new(|| Service::start(&Scratch::new()));

fuzz_target!(
    init: {
        if terrace_engine::enter_chat_worker().is_some() {
            std::process::exit(0);
        }
    },
    |data: &[u8]| {
        let Some(request) = request(data) else { return };
        let asked = format!("{} {}", request.method(), request.uri());
        let answer = SERVICE.ask(request);
        check(&asked, &answer);
    }
);

fn request(data: &[u8]) -> Option<Request<Body>> {
    let mut rest = data;
    let mut line = || {
        let end = rest.iter().position(|&byte| byte == b'\n')?;
        let line = &rest[..end];
        rest = &rest[end + 1..];
        Some(line)
    };
    let (method, path) = std::str::from_utf8(line()?).ok()?.split_once(' ')?;
    let mut request = Request::builder().method(method).uri(path);
    while let Some(header) = line().filter(|line| !line.is_empty()) {
        let colon = header.iter().position(|&byte| byte == b':')?;
        request = request.header(&header[..colon], header[colon + 1..].trim_ascii());
    }
    request.body(Body::from(rest.to_vec())).ok()
}

/// No answer is an error of the server's own, and each is what its content type says.
fn check(asked: &str, answer: &Answer) {
    let status = answer.status;
    assert!(!status.is_server_error(), "{asked}: {status}: {}", String::from_utf8_lossy(&answer.body));
    if asked.starts_with("HEAD ") {
        return assert!(answer.body.is_empty(), "{asked}");
    }
    let Some((objects, _)) = answer.objects() else { return };
    if status.is_client_error() {
        let error = &objects[0]["error"];
        let message = error["message"].as_str().or(error.as_str());
        assert!(message.is_some_and(|text| !text.is_empty() && !text.contains('\n')), "{asked}: {error}");
    }
}
