//! What whoever runs a server has of it: a log of requests, keys, TLS, metrics under llama.cpp's names.

use crate::common::{bundled, failure, run};
use crate::server::{Server, TEST_TIMEOUT};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// The lines of the log that are about requests.
fn requests(stderr: &str) -> Vec<Value> {
    let lines = stderr.lines().map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: `{line}`\n{stderr}"))
    });
    lines.filter(|line| line["target"] == "terrace_server::request").collect()
}

#[test]
fn each_request_is_a_line_of_the_log_without_its_text() {
    let server = Server::start(&bundled(), ["--log-format", "json", "--ctx", "128"]);
    let secret = "In the beginning";
    let body = json!({"prompt": secret, "max_tokens": 3, "cache_prompt": false}).to_string();
    let reply = server.request("POST", "/v1/completions?secret=1", &[("x-request-id", "mine-1")], &body);
    assert_eq!(
        (reply.ok()["usage"]["completion_tokens"].as_u64(), reply.header("x-request-id")),
        (Some(3), "mine-1")
    );
    let wrong =
        server.request("POST", "/v1/completions", &[], r#"{"prompt": "a secret", "max_tokens": "1"}"#);
    assert_eq!(wrong.status, 400);
    let made = wrong.header("x-request-id").to_owned();
    let stream = json!({"prompt": secret, "max_tokens": 2, "stream": true}).to_string();
    server.request("POST", "/v1/completions", &[("x-request-id", "mine-2")], &stream).events();
    server.signal("-TERM");
    let (status, stderr) = server.ended();
    assert!(status.success(), "{stderr}");
    let lines = requests(&stderr);
    let of =
        |id: &str| lines.iter().find(|line| line["id"] == id).unwrap_or_else(|| panic!("{id}: {stderr}"));
    let line = of("mine-1");
    assert_eq!(
        (&line["method"], &line["path"], &line["status"]),
        (&json!("POST"), &json!("/v1/completions"), &json!(200))
    );
    assert_eq!(
        (&line["tokens"], &line["end"], &line["model"]),
        (&json!(3), &json!("length"), &json!("tiny-moe-Q4_K"))
    );
    for time in ["ms", "queued_ms", "ttft_ms"] {
        assert!(line[time].is_number(), "{time}: {line}");
    }
    assert!(line["prompt_tokens"].as_u64() > Some(1) && line["bytes"].as_u64() > Some(100), "{line}");
    assert!(line["timestamp"].is_string() && line.get("left").is_none(), "{line}");
    assert_eq!(of(&made)["status"], 400);
    assert_eq!(of("mine-2")["tokens"], 2);
    assert!(!stderr.contains("beginning") && !stderr.contains("secret"), "{stderr}");
}

#[test]
fn the_log_has_no_colours_where_no_terminal_shows_it() {
    let server = Server::start(&bundled(), ["--log-format", "text", "--ctx", "2048"]);
    server.request("GET", "/nothing", &[("x-request-id", "mine")], "");
    server.signal("-TERM");
    let (_, stderr) = server.ended();
    assert!(!stderr.contains('\u{1b}'), "{stderr:?}");
    let line = stderr.lines().find(|line| line.contains("id=\"mine\"")).unwrap_or_else(|| panic!("{stderr}"));
    assert!(line.contains("status=404") && line.contains("path=\"/nothing\""), "{line}");
    assert!(stderr.contains("longer than the"), "more than the model was trained with: {stderr}");
}

#[test]
fn keys_are_read_from_files_and_changes_need_another_one() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (users, admins) = (file("users", "# of the team\none\ntwo\n"), file("admins", "root\n"));
    let server = Server::start(
        &bundled(),
        ["--api-key-file", &users, "--api-key", "three", "--admin-key-file", &admins],
    );
    let status = |path: &str, headers: &[(&str, &str)]| server.request("POST", path, headers, "{}").status;
    for key in ["one", "two", "three", "root"] {
        assert_eq!(status("/tokenize", &[("x-api-key", key)]), 400, "{key} is good");
    }
    assert_eq!(status("/tokenize", &[("x-api-key", "four")]), 401);
    assert_eq!(status("/tokenize", &[]), 401);
    assert_eq!(status("/v1/tensors/reload", &[]), 401);
    let anthropic = server.request("POST", "/v1/messages", &[("x-api-key", "four")], "{}");
    assert_eq!((anthropic.status, &anthropic.json()["error"]["type"]), (401, &json!("authentication_error")));
    assert_eq!(status("/v1/tensors/reload", &[("authorization", "Bearer one")]), 403);
    assert_eq!(status("/v1/tensors/reload", &[("authorization", "Bearer root")]), 200);
    let empty = file("empty", "\n");
    for path in ["/nonexistent/keys", &empty] {
        failure(&run(["serve", "m.gguf", "--api-key-file", path]), 2);
    }
}

#[test]
fn unknown_fields_are_named_and_refused_only_by_strict_servers() {
    let server = Server::start(&bundled(), ["--ctx", "128"]);
    let body = json!({"prompt": "a", "max_tokens": 1, "character_name": "x", "preset": {"a": 1}});
    let reply = server.post("/v1/completions", &body);
    reply.ok();
    assert_eq!(reply.header("x-terrace-warning"), "ignored unknown fields: character_name, preset");
    assert_eq!(
        server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 1})).header("x-terrace-warning"),
        ""
    );
    let turns = json!([{"role": "user", "content": "a"}]);
    let body = json!({"max_tokens": 1, "messages": turns, "tempo": "fast", "thinking": {"type": "disabled", "effort": 1}});
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let reply = server.post(path, &body);
        reply.ok();
        assert_eq!(
            reply.header("x-terrace-warning"),
            "ignored unknown fields: thinking.effort, tempo",
            "{path}"
        );
    }
    server.signal("-TERM");
    let log = server.ended().1;
    assert_eq!(log.matches("unknown fields, which are ignored: character_name, preset").count(), 1, "{log}");
    assert_eq!(log.matches("thinking.effort, tempo").count(), 1, "{log}");

    let strict = Server::start(&bundled(), ["--strict", "--ctx", "128"]);
    let error = strict.post("/v1/completions", &json!({"prompt": "a", "max_token": 1})).error(400);
    assert_eq!(error["message"], "unknown field `max_token`; did you mean `max_tokens`?");
}

#[test]
fn a_larger_context_than_the_servers_is_no_error_for_ollamas_clients() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let body = |prompt: &str| {
        let options = json!({"num_ctx": 8192, "num_predict": 1});
        json!({"model": "any", "prompt": prompt, "stream": false, "options": options})
    };
    let reply = server.post("/api/generate", &body("In the beginning"));
    reply.ok();
    let warning = "`options.num_ctx` is 256, the server's context, instead of 8192";
    assert_eq!(reply.header("x-terrace-warning"), warning);
    let error = server.post("/api/generate", &body(&"word ".repeat(500))).text;
    assert!(error.contains("--ctx"), "{error}");
    server.signal("-TERM");
    let log = server.ended().1;
    assert_eq!(log.matches(warning).count(), 1, "{log}");
}

#[test]
fn metrics_have_llama_cpps_names_too() {
    let server = Server::start(&bundled(), ["--ctx", "128"]);
    server.post("/v1/completions", &json!({"prompt": "In the beginning", "max_tokens": 4})).ok();
    assert_eq!(server.metric("llamacpp:tokens_predicted_total"), 4.0);
    assert_eq!(server.metric("llamacpp:prompt_tokens_total"), server.metric("terrace_prompt_tokens_total"));
    assert_eq!(server.metric("llamacpp:requests_processing"), 0.0);
    assert!(server.metric("llamacpp:n_decode_total") >= 4.0 && server.metric("llamacpp:n_tokens_max") > 4.0);
}

#[test]
fn a_prompt_that_is_too_long_is_refused_in_words_that_clients_know() {
    let server = Server::start(&bundled(), ["--ctx", "256"]);
    let prompt: Vec<i32> = vec![5; 300];
    let error = server.post("/v1/completions", &json!({"prompt": prompt})).error(400);
    assert_eq!(
        (&error["type"], &error["code"]),
        (&json!("exceed_context_size_error"), &json!("context_length_exceeded"))
    );
    assert_eq!((&error["n_prompt_tokens"], &error["n_ctx"]), (&json!(300), &json!(server_context(&server))));
    assert!(error["message"].as_str().unwrap().contains("exceeds the available context size"), "{error}");
    let turns = json!([{"role": "user", "content": "water ".repeat(300)}]);
    let reply = server.post("/v1/messages", &json!({"max_tokens": 1, "messages": turns}));
    let error = reply.json();
    assert_eq!((reply.status, &error["error"]["type"]), (400, &json!("invalid_request_error")));
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("prompt is too long: ") && message.contains(" tokens > "), "{message}");
}

fn server_context(server: &Server) -> u64 {
    server.get("/props").ok()["default_generation_settings"]["n_ctx"].as_u64().unwrap()
}

/// A certificate for 127.0.0.1, and its key. Made once for these tests, for a hundred years:
/// `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -subj "/CN=..."
/// -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE`.
type Pair = [&'static str; 2];
const FIRST: Pair = [include_str!("../data/tls/first.pem"), include_str!("../data/tls/first.key.pem")];
const SECOND: Pair = [include_str!("../data/tls/second.pem"), include_str!("../data/tls/second.key.pem")];

/// Writes a certificate and its key, and returns the certificate.
fn certificate(dir: &Path, [certificate, key]: Pair) -> &'static str {
    fs::write(dir.join("cert.pem"), certificate).unwrap();
    fs::write(dir.join("key.pem"), key).unwrap();
    certificate
}

/// A client that trusts this certificate alone.
fn trusting(certificate: &str) -> ureq::Agent {
    let root = Certificate::from_pem(certificate.as_bytes()).unwrap();
    let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[root])).build();
    ureq::Agent::config_builder().timeout_global(Some(TEST_TIMEOUT)).tls_config(tls).build().new_agent()
}

#[test]
fn it_answers_over_tls_and_reads_the_certificate_again() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let first = certificate(dir.path(), FIRST);
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    let args = ["--ssl-cert-file", &cert, "--ssl-key-file", &key, "--ctx", "128"];
    let mut server = Server::start_secured(&bundled(), args);
    let mut log = BufReader::new(server.take_stderr()).lines();
    let url = |path: &str| format!("https://{}{path}", server.address);
    let ready =
        |agent: &ureq::Agent| agent.get(url("/health")).call().is_ok_and(|reply| reply.status() == 200);
    let client = trusting(first);
    server.wait_for(|_| ready(&client));
    let body = json!({"prompt": "In the beginning", "max_tokens": 8, "stream": true}).to_string();
    let reply = client.post(url("/v1/completions")).content_type("application/json").send(&body).unwrap();
    let text = reply.into_body().read_to_string().unwrap();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    // Without TLS there is no answer.
    let plain = ureq::get(format!("http://{}/health", server.address)).call();
    assert!(plain.is_err(), "{plain:?}");
    // A pair that does not fit changes nothing; one that does is shown to new clients.
    fs::write(dir.path().join("key.pem"), "no key").unwrap();
    server.signal("-HUP");
    let refused = |line: &std::io::Result<String>| {
        line.as_ref().unwrap().contains("the current certificate stays in use")
    };
    assert!(log.any(|line| refused(&line)), "it says so");
    assert!(ready(&trusting(first)));
    let second = certificate(dir.path(), SECOND);
    assert!(!ready(&trusting(second)), "it is not read yet");
    server.signal("-HUP");
    server.wait_for(|_| ready(&trusting(second)));
    assert!(!ready(&trusting(first)), "the old one is not shown any more");
    server.signal("-TERM");
    let (status, _) = server.ended();
    let rest: Vec<String> = log.map(|line| line.unwrap()).collect();
    assert!(status.success(), "{rest:?}");
}

#[test]
fn half_of_a_certificate_is_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    certificate(dir.path(), FIRST);
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    let error = failure(&run(["serve", "m.gguf", "--port", "0", "--ssl-cert-file", &cert]), 2);
    assert!(error.contains("--ssl-cert-file without --ssl-key-file"), "{error}");
    for (cert, key) in [(&key, &key), (&cert, &cert), (&path("none"), &key)] {
        failure(&run(["serve", "m.gguf", "--port", "0", "--ssl-cert-file", cert, "--ssl-key-file", key]), 1);
    }
}
