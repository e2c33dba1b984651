//! One line for each request in the log, when its response has been sent or its client has left. It has
//! no text of prompts or answers.

use crate::exchange::Exchange;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Method, Uri};
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;
use terrace_engine::StopReason;

/// Maximum length of a path in the log.
const PATH: usize = 200;

/// The line of a request, written when it is dropped.
pub struct RequestLine {
    exchange: Arc<Exchange>,
    method: Method,
    path: String,
    begin: Instant,
    /// `None`: there is no response yet.
    status: Option<u16>,
    bytes: u64,
    /// True if the response is complete.
    complete: bool,
}

impl RequestLine {
    /// Begins the line of a request.
    pub fn begin(exchange: Arc<Exchange>, method: &Method, uri: &Uri) -> Self {
        // Parameters may have text in them.
        let path = uri.path().chars().take(PATH).collect();
        let (method, begin) = (method.clone(), Instant::now());
        Self { exchange, method, path, begin, status: None, bytes: 0, complete: false }
    }

    /// Continues with the body of the response.
    pub fn follow(mut self, status: u16, body: Body) -> Body {
        // An empty body is not asked for.
        (self.status, self.complete) = (Some(status), body.is_end_stream());
        Body::new(Followed { body, line: self })
    }
}

impl Drop for RequestLine {
    fn drop(&mut self) {
        let notes = self.exchange.noted();
        // Probes come many times a second while a model loads.
        let probe = self.path == "/health" && self.status == Some(503);
        if notes.passed_on || probe {
            return;
        }
        let counts = notes.answers;
        let tenths = |ms: f64| (ms * 10.0).round() / 10.0;
        tracing::info!(
            target: "terrace_server::request",
            id = self.exchange.id,
            method = self.method.as_str(),
            path = self.path,
            status = self.status,
            ms = tenths(self.begin.elapsed().as_secs_f64() * 1e3),
            bytes = self.bytes,
            left = (!self.complete).then_some(true),
            model = notes.model,
            prompt_tokens = counts.map(|counts| counts.prompt_tokens),
            cached_tokens = counts.map(|counts| counts.cached_tokens),
            tokens = counts.map(|counts| counts.tokens),
            queued_ms = counts.map(|counts| tenths(counts.queued_ms)),
            ttft_ms = counts.map(|counts| tenths(counts.ttft_ms)),
            end = counts.and_then(|counts| counts.stop).map(name),
            "request"
        );
    }
}

/// The name that answers have for it as well.
fn name(stop: StopReason) -> String {
    serde_json::to_value(stop).ok().and_then(|name| name.as_str().map(String::from)).unwrap_or_default()
}

/// A body that is followed to its end.
struct Followed {
    body: Body,
    line: RequestLine,
}

impl HttpBody for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.line.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                // The end of a body of known length is not asked for.
                self.line.complete = self.body.is_end_stream();
            }
            Poll::Ready(None) => self.line.complete = true,
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
