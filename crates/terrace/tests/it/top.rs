//! `terrace top` and `terrace experts apply` against a real server.

use crate::common::{run, stderr, stdout, terrace};
use crate::server::{Server, TEST_TIMEOUT};
use crate::terminal::Terminal;
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};
use terrace_model::ByteSize;
use terrace_testkit::rpc::RpcServer;

fn device() -> RpcServer {
    RpcServer::start(ByteSize::mib(64)).unwrap()
}

/// A server with slots for copies that stay empty unless something is applied.
fn serve(device: &RpcServer, more: &[&str]) -> Server {
    let common = ["--ram-budget", "6MiB", "-ngl", "0", "--hot-cache", "2MiB", "--hot-lanes", "always"];
    let beside = ["--hot-update", "off", "--ctx", "256", "--rpc", device.endpoint()];
    Server::start(&crate::common::bundled(), common.iter().chain(&beside).chain(more))
}

fn generate(server: &Server) {
    let body = json!({"prompt": "In the beginning", "max_tokens": 8, "cache_prompt": false});
    server.post("/v1/completions", &body).ok();
}

/// The text of a command that succeeds.
#[track_caller]
fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    stdout(output).to_owned()
}

/// The error of a command that fails with one line, and perhaps a hint.
#[track_caller]
fn refused(output: &Output) -> String {
    assert!(!output.status.success(), "{}", stdout(output));
    let text = stderr(output);
    let errors: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
    assert_eq!(errors.len(), 1, "{text}");
    assert!(text.lines().count() <= 2, "{text}");
    errors[0].to_owned()
}

#[test]
fn learn_files_are_applied_from_the_command_line() {
    let (device, dir) = (device(), tempfile::tempdir().unwrap());
    let (file, saved) = (dir.path().join("learned.json"), dir.path().join("saved"));
    std::fs::create_dir(&saved).unwrap();
    let server = serve(&device, &["--learn-dir", saved.to_str().unwrap()]);
    generate(&server);
    std::fs::write(&file, server.get("/moe-layer-perf").text).unwrap();
    let apply = |more: &[&str]| {
        let words = ["experts", "apply", file.to_str().unwrap(), "--server", &server.address];
        run(words.iter().chain(more))
    };
    let text = ok(&apply(&[]));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains(" experts copied in 6 layers; devices hold "), "{text}");
    assert!(lines[1].starts_with("layers (experts copied): 0 ("), "{text}");
    assert_eq!(lines.len(), 2, "{text}");
    // The same again changes nothing, and may be saved.
    let again: Value = serde_json::from_str(&ok(&apply(&["--json", "--save"]))).unwrap();
    assert_eq!((&again["exchanged"], &again["layers"]), (&json!(0), &json!([])), "{again}");
    assert!(Path::new(again["path"].as_str().unwrap()).starts_with(saved.canonicalize().unwrap()), "{again}");
    // What is refused is one line.
    std::fs::write(&file, server.get("/moe-layer-perf").text.replace("\"n_expert\":32", "\"n_expert\":64"))
        .unwrap();
    let error = refused(&apply(&[]));
    assert!(error.ends_with("64 experts per layer, but the model has 32"), "{error}");
    std::fs::write(&file, "nonsense").unwrap();
    assert!(refused(&apply(&[])).contains("not a learn file"));
    drop(server);
}

#[test]
fn servers_that_do_not_answer_are_one_line() {
    let device = device();
    let server = serve(&device, &["--api-key", "secret"]);
    let learned = tempfile::NamedTempFile::new().unwrap();
    let apply = |address: &str, key: Option<&str>| {
        let mut command = terrace();
        command.args(["experts", "apply", learned.path().to_str().unwrap(), "--server", address]);
        key.map(|key| command.env("TERRACE_API_KEY", key));
        command.output().unwrap()
    };
    std::fs::write(learned.path(), r#"{"schema":"llama.cpp.moe_layer_opt_perf.v1","layers":[]}"#).unwrap();
    let error = refused(&apply(&server.address, None));
    assert!(error.starts_with(&format!("http://{}: ", server.address)), "{error}");
    let error = refused(&apply(&server.address, Some("wrong")));
    assert!(error.starts_with(&format!("http://{}: ", server.address)), "{error}");
    assert!(refused(&apply(&server.address, Some("secret"))).ends_with("no uses of experts in it"));
    let top = |key: &str| run(["top", "--once", &server.address, "--api-key", key]);
    assert!(refused(&top("wrong")).starts_with("http://"));
    assert!(ok(&top("secret")).contains("tiny-moe"));
    // An address that is taken, but where nothing listens.
    let taken = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    taken.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let address = taken.local_addr().unwrap().as_socket().unwrap().to_string();
    let error = refused(&run(["top", "--once", &address]));
    assert!(error.starts_with(&format!("http://{address}: ")), "{error}");
    for address in ["", "ftp://box", "http://", "a b"] {
        assert!(refused(&run(["top", "--once", address])).ends_with("is not a server address"), "{address}");
    }
    // Without a terminal, only one frame.
    assert!(refused(&run(["top"])).contains("no terminal"));
}

#[test]
fn one_frame_is_printed_for_scripts() {
    let device = device();
    let server = serve(&device, &["--parallel", "2"]);
    generate(&server);
    let frame = ok(&run(["top", "--once", &server.address]));
    let lines: Vec<&str> = frame.lines().collect();
    assert!(
        lines[0].starts_with("terrace  tiny-moe") && lines[0].ends_with("mode full  epoch 0  waiting 0"),
        "{frame}"
    );
    assert!(frame.contains("(8 generated)") && frame.contains("slot 1 idle: holds "), "{frame}");
    assert!(frame.contains("\n6 layers: D device"), "{frame}");
    assert!(
        (0..6).all(|layer| lines.iter().any(|line| line.starts_with(&format!("   {layer} ")))),
        "{frame}"
    );
    assert!(lines.iter().all(|line| line.chars().count() <= 80) && lines.len() <= 24, "{frame}");
    assert!(!frame.contains('\u{1b}'), "{frame}");
}

#[test]
fn top_is_live_in_a_terminal() {
    let device = device();
    let server = serve(&device, &[]);
    let mut command = terrace();
    command.args(["top", &server.address]);
    let (mut terminal, mut child) = Terminal::start(&mut command, 100);
    // The alternate screen.
    terminal.wait_for("\u{1b}[?1049h");
    // Keys do nothing before the first event.
    let begin = Instant::now();
    while server.get("/moe-layer-perf").ok()["mode"] != "update" {
        assert!(begin.elapsed() < TEST_TIMEOUT, "the key does nothing: {}", terminal.text);
        terminal.press(b"m");
        std::thread::sleep(Duration::from_millis(300));
    }
    generate(&server);
    drop(server);
    // Without a server it goes on.
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none());
    terminal.press(b"q");
    terminal.wait_for("\u{1b}[?1049l");
    assert!(child.wait().unwrap().success());
}
