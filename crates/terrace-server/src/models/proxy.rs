//! Passes requests on to the process of a model, and its responses back.

use super::child::{connect, request};
use super::pool::Lease;
use crate::error::ApiError;
use crate::exchange::{Exchange, REQUEST_ID};
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use axum::response::Response;
use http_body_util::Full;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::client::conn::http1::SendRequest;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Headers that concern one connection, or the client's rights at this server.
const OWN: [HeaderName; 12] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::CONTENT_LENGTH,
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
        ApiError::internal(format!("the process of the model does not answer: {error}"))
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
    Ok(Response::from_parts(parts, Body::new(Leased { body, _lease: lease, _sender: sender })))
}

/// The body of a response, with the hold on its model.
struct Leased {
    body: Incoming,
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
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
