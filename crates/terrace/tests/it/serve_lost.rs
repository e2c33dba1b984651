//! A server whose weights are lost: an RPC server that holds half of the layers ends while clients
//! wait for answers.

use crate::common::bundled;
use crate::server::Server;
use serde_json::{Value, json};
use std::io::Read;
use std::net::TcpStream;
use terrace_model::ByteSize;
use terrace_testkit::rpc::RpcServer;

/// The rest of a connection.
fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn all_clients_are_told_and_the_server_ends() {
    let device = RpcServer::start(ByteSize::mib(256)).unwrap();
    let options = ["-ngl", "3", "--rpc", device.endpoint(), "--ctx", "4096", "--parallel", "2"];
    let server = Server::start(&bundled(), options);
    let long = |stream: bool| json!({"prompt": "In the beginning", "max_tokens": 4000, "stream": stream});
    let mut streamed = server.begin("/v1/completions", &long(true));
    let mut whole = server.begin("/v1/completions", &long(false));
    server.wait_for(|server| server.processing() == 2);
    let mut queued = server.begin("/v1/completions", &long(false));
    server.wait_for(|server| server.waiting() == 1);
    let mut first = [0; 256];
    streamed.read_exact(&mut first).unwrap();
    drop(device);
    for text in [rest(&mut whole), rest(&mut queued)] {
        assert!(text.starts_with("HTTP/1.1 500 "), "{text}");
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        let error: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {text}"));
        assert_eq!(error["error"]["code"], "device_lost", "{text}");
    }
    let text = rest(&mut streamed);
    assert!(text.contains("device_lost") && text.contains("is lost; the server ends"), "{text}");
    let (status, said) = server.ended();
    assert_eq!(status.code(), Some(1), "{said}");
    assert_eq!(said.matches("error: ").count(), 1, "{said}");
    assert!(said.contains("hint: an RPC server ended"), "{said}");
}
