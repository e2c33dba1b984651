//! What is asked of the process of a model beside clients' requests.

use axum::body::Bytes;
use axum::http::request::Builder;
use axum::http::{Method, Request, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::json;
use std::net::SocketAddr;
use terrace_model::ByteSize;
use tokio::net::TcpStream;

/// Maximum size of an answer about memory.
const MOST: usize = 64 << 10;

/// The memory of the slots that a process's weights stream through, in bytes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub struct Slots {
    /// The least that they can work with.
    pub least: u64,
    /// What they were opened with.
    pub most: u64,
    /// What they may take now.
    pub limit: u64,
    /// What they hold.
    pub held: u64,
}

/// An answer about memory.
#[derive(Deserialize)]
struct Memory {
    slots: Option<Slots>,
}

/// Whether the process at this address has loaded its model.
pub async fn is_ready(address: SocketAddr, key: &str) -> bool {
    let Ok(mut sender) = connect(address).await else { return false };
    let request = request(&Method::GET, "/health", address, key).body(Full::new(Bytes::new()));
    let Ok(request) = request else { return false };
    sender.send_request(request).await.is_ok_and(|response| response.status().is_success())
}

/// The slots of a process; `None` if nothing streams, or if it does not answer.
pub async fn slots(address: SocketAddr, key: &str) -> Option<Slots> {
    memory(Method::GET, Bytes::new(), address, key).await
}

/// Limits the slots of a process. Returns what came of it, once memory beyond the limit is free, or after a
/// while.
pub async fn limit(address: SocketAddr, key: &str, bytes: ByteSize) -> Option<Slots> {
    let body = json!({"slots": bytes.bytes()}).to_string();
    memory(Method::POST, body.into(), address, key).await
}

async fn memory(method: Method, body: Bytes, address: SocketAddr, key: &str) -> Option<Slots> {
    let mut sender = connect(address).await.ok()?;
    let request =
        request(&method, "/v1/memory", address, key).header(header::CONTENT_TYPE, "application/json");
    let response = sender.send_request(request.body(Full::new(body)).ok()?).await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    let body = Limited::new(response.into_body(), MOST).collect().await.ok()?.to_bytes();
    serde_json::from_slice::<Memory>(&body).ok()?.slots
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
