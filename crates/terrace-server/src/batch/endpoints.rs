//! The server's own endpoints, asked from within its process.

use super::answer::Responded;
use super::request::Request;
use crate::app::App;
use crate::exchange::REQUEST_ID;
use crate::router;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request as HttpRequest, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use tower::ServiceExt;

/// Time until a request is sent again for which there was no room.
const AGAIN: Duration = Duration::from_millis(500);
/// Codes of errors after which no request is answered any more.
const LAST: [&str; 2] = ["stopping", "device_lost"];

/// Marks a request of a batch, which waits for those of clients.
#[derive(Clone, Copy, Debug)]
pub struct OfBatch;

/// The endpoints.
#[derive(Clone)]
pub struct Endpoints {
    router: Router,
    /// True if the requests of clients come first.
    background: bool,
}

/// No further requests are answered, for this reason.
#[derive(Debug)]
pub struct Gone(pub String);

impl Endpoints {
    /// The endpoints of a server.
    pub fn of(app: &Arc<App>, background: bool) -> Self {
        Self { router: router::within(app), background }
    }

    /// Has a request answered, as soon as there is room for it.
    ///
    /// # Errors
    /// The server ends, or has lost its model.
    pub async fn ask(&self, request: &Request) -> Result<Responded, Gone> {
        loop {
            let (headers, responded) = self.respond(request).await;
            let code = responded.body["error"]["code"].as_str().unwrap_or_default();
            if LAST.contains(&code) {
                return Err(Gone(responded.body["error"]["message"].as_str().unwrap_or(code).to_owned()));
            }
            let full =
                matches!(responded.status_code, 429 | 503) && headers.contains_key(header::RETRY_AFTER);
            if !full {
                return Ok(responded);
            }
            sleep(AGAIN).await;
        }
    }

    async fn respond(&self, request: &Request) -> (HeaderMap, Responded) {
        let mut http = HttpRequest::builder()
            .method(Method::POST)
            .uri(request.url)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONTENT_LENGTH, request.body.len())
            .body(Body::from(request.body.clone()))
            .expect("a request of known parts");
        if self.background {
            http.extensions_mut().insert(OfBatch);
        }
        let Ok(response) = self.router.clone().oneshot(http).await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let text = || json!({"error": {"message": String::from_utf8_lossy(&bytes), "code": null}});
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
        let id = parts.headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).unwrap_or_default();
        let responded = Responded { status_code: parts.status.as_u16(), request_id: id.to_owned(), body };
        (parts.headers, responded)
    }
}
