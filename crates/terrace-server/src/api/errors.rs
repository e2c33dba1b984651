//! Errors in the form of the API that a request was sent to, also where no handler saw it: without a
//! key, while the model loads, or with too large a body.

use super::{anthropic, ollama};
use crate::error::ApiError;
use crate::response::json;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use serde_json::Value;
use std::sync::Arc;

/// The form of errors at a path. `None`: OpenAI's, which they have already.
fn form(path: &str) -> Option<fn(&ApiError) -> Value> {
    if path == "/v1/messages" || path.starts_with("/v1/messages/") {
        Some(anthropic::error_object)
    } else if path.starts_with("/api/") {
        Some(ollama::error_object)
    } else {
        None
    }
}

/// Puts the error of a response in the form of its API.
pub async fn in_form(request: Request, next: Next) -> Response {
    let form = form(request.uri().path());
    let mut response = next.run(request).await;
    let (Some(form), Some(error)) = (form, response.extensions_mut().remove::<Arc<ApiError>>()) else {
        return response;
    };
    // Its headers say when to come again.
    let (mut parts, _) = response.into_parts();
    let (written, body) = json(&form(&error)).into_parts();
    parts.headers.extend(written.headers);
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, body)
}
