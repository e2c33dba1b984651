//! Questions to the process of a model beside clients' requests.

use axum::body::Bytes;
use axum::http::request::Builder;
use axum::http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::json;
use std::net::SocketAddr;
use terrace_engine::SlotsMemory;
use terrace_model::ByteSize;
use tokio::net::TcpStream;

/// Maximum size of an answer about memory.
const MAX_ANSWER: usize = 64 << 10;

/// An answer about memory: the slots that a process's weights stream through, if they do.
#[derive(Deserialize)]
struct Memory {
    slots: Option<SlotsMemory>,
}

/// Returns true if the process at this address has loaded its model.
pub async fn is_ready(address: SocketAddr, key: &str) -> bool {
    ask(&Method::GET, "/health", Bytes::new(), address, key).await.is_some()
}

/// The slots of a process; `None` if nothing streams, or if it does not answer.
pub async fn slots(address: SocketAddr, key: &str) -> Option<SlotsMemory> {
    memory(&Method::GET, Bytes::new(), address, key).await
}

/// Limits the slots of a process. Returns what came of it, once memory beyond the limit is free, or after a
/// while.
pub async fn limit(address: SocketAddr, key: &str, bytes: ByteSize) -> Option<SlotsMemory> {
    let body = json!({"slots": bytes}).to_string();
    memory(&Method::POST, body.into(), address, key).await
}

async fn memory(method: &Method, body: Bytes, address: SocketAddr, key: &str) -> Option<SlotsMemory> {
    let response = ask(method, "/v1/memory", body, address, key).await?;
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.ok()?.to_bytes();
    serde_json::from_slice::<Memory>(&body).ok()?.slots
}

/// The response of a process, if it is one of success.
async fn ask(
    method: &Method,
    path: &str,
    body: Bytes,
    address: SocketAddr,
    key: &str,
) -> Option<Response<Incoming>> {
    let mut sender = connect(address).await.ok()?;
    let request = request(method, path, address, key).header(header::CONTENT_TYPE, "application/json");
    let response = sender.send_request(request.body(Full::new(body)).ok()?).await.ok()?;
    response.status().is_success().then_some(response)
}

/// Begins a request to a process.
pub fn request(method: &Method, path: &str, address: SocketAddr, key: &str) -> Builder {
    Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, address.to_string())
        .header(header::AUTHORIZATION, format!("Bearer {key}"))
}

/// Connects to a process.
pub async fn connect(
    address: SocketAddr,
) -> Result<SendRequest<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // Ends when the response has been read, or nothing reads it any more: then the process is told.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}
