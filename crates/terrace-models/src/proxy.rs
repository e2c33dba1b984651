//! Passes requests on to the process of a model, and its responses back.

use super::child::{connect, request};
use super::pool::Lease;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::response::Response;
use http_body_util::Full;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::client::conn::http1::SendRequest;
use std::pin::Pin;
use std::task::{Context, Poll};
use terrace_server::front::{ApiError, Exchange, REQUEST_ID, last_of_stream};

/// Headers that concern one connection, or the client's rights at this server.
const OWN: [HeaderName; 13] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::CONTENT_LENGTH,
    // What is passed on is not compressed.
    header::CONTENT_ENCODING,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::EXPECT,
    header::HOST,
    header::AUTHORIZATION,
    header::ORIGIN,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static(REQUEST_ID),
];

/// A request to pass on, with its whole body.
pub struct Passed {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Passes a request on to the process of a model. The lease is held until the response has been sent.
///
/// # Errors
/// The process cannot be reached.
pub async fn pass_on(lease: Lease, passed: Passed) -> Result<Response, ApiError> {
    let Passed { method, uri, mut headers, body } = passed;
    OWN.iter().for_each(|name| drop(headers.remove(name)));
    let exchange = Exchange::here();
    if let Some(id) = exchange.as_ref().and_then(|exchange| HeaderValue::from_str(&exchange.id).ok()) {
        headers.insert(REQUEST_ID, id);
    }
    let lost = |error: &dyn std::fmt::Display| {
        ApiError::internal(format!("the model's process does not respond: {error}"))
    };
    let mut sender = connect(lease.address).await.map_err(|error| lost(&error))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = request(&method, path, lease.address, &lease.key);
    let mut request = request.body(Full::new(body)).map_err(|error| lost(&error))?;
    request.headers_mut().extend(headers);
    let response = sender.send_request(request).await.map_err(|error| lost(&error))?;
    if let Some(exchange) = exchange {
        exchange.pass_on();
    }
    let (mut parts, body) = response.into_parts();
    for name in [header::CONNECTION, header::TRANSFER_ENCODING] {
        parts.headers.remove(name);
    }
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let last = last_of_stream(uri.path(), kind.unwrap_or_default(), &ApiError::model_lost());
    let leased = Leased { body, last, line_ended: true, lost: false, _lease: lease, _sender: sender };
    Ok(Response::from_parts(parts, Body::new(leased)))
}

/// The body of a response, with the hold on its model.
struct Leased {
    body: Incoming,
    /// Text in place of the rest if the process ends before the body does. `None`: there is none, and the
    /// connection ends early.
    last: Option<String>,
    /// True if the sent text ends with a line.
    line_ended: bool,
    /// True if the process has ended.
    lost: bool,
    _lease: Lease,
    _sender: SendRequest<Full<Bytes>>,
}

impl HttpBody for Leased {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.lost {
            return Poll::Ready(None);
        }
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Err(error))) => match self.last.take() {
                Some(last) => {
                    self.lost = true;
                    tracing::warn!("a model's process ended before it responded: {error}");
                    // Ends a part of an event.
                    let before = if self.line_ended { "" } else { "\n\n" };
                    Poll::Ready(Some(Ok(Frame::data(format!("{before}{last}").into()))))
                }
                None => Poll::Ready(Some(Err(error))),
            },
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(end) = frame.data_ref().and_then(|data| data.last()) {
                    self.line_ended = *end == b'\n';
                }
                Poll::Ready(Some(Ok(frame)))
            }
            other => other,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.lost || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
