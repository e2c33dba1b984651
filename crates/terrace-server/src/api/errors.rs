//! Errors in the form of the API that a request was sent to, also where no handler saw it: without a
//! key, while the model loads, or with too large a body.

use super::{anthropic, ollama};
use crate::error::ApiError;
use crate::response::json as respond;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use serde_json::{Value, json};
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

/// The end of a stream that another process began and cannot finish, as the API of this path has it. `None`:
/// this type of content has no place for an error.
pub fn last_of_stream(path: &str, content_type: &str, error: &ApiError) -> Option<String> {
    let body = || form(path).map_or_else(|| error.body(), |form| form(error));
    if content_type.starts_with("application/x-ndjson") {
        return Some(format!("{}\n", body()));
    }
    if !content_type.starts_with("text/event-stream") {
        return None;
    }
    if path.starts_with("/v1/responses") {
        let (code, message) = (error.code().unwrap_or("server_error"), error.message());
        let data = json!({"type": "error", "code": code, "message": message, "param": null});
        return Some(format!("event: error\ndata: {data}\n\n"));
    }
    // Anthropic's events have names.
    let name = if form(path).is_some() { "event: error\n" } else { "" };
    Some(format!("{name}data: {}\n\n", body()))
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
    let (written, body) = respond(&form(&error)).into_parts();
    parts.headers.extend(written.headers);
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_end_with_an_error_in_their_apis_form() {
        let error = ApiError::model_lost();
        let last = |path, kind| last_of_stream(path, kind, &error);
        let events = "text/event-stream";
        let data = |text: Option<String>, before: &str| -> Value {
            let text = text.unwrap();
            let data = text.strip_prefix(before).and_then(|text| text.strip_suffix("\n\n"));
            serde_json::from_str(data.unwrap_or_else(|| panic!("{text:?}"))).unwrap()
        };
        assert_eq!(data(last("/v1/chat/completions", events), "data: ")["error"]["code"], "model_lost");
        let anthropic = data(last("/v1/messages", events), "event: error\ndata: ");
        assert_eq!((&anthropic["type"], &anthropic["error"]["type"]), (&json!("error"), &json!("api_error")));
        assert_eq!(data(last("/v1/responses", events), "event: error\ndata: ")["code"], "model_lost");
        let line: Value = serde_json::from_str(&last("/api/chat", "application/x-ndjson").unwrap()).unwrap();
        assert!(line["error"].is_string(), "{line}");
        assert_eq!(last("/v1/completions", "application/json"), None);
    }
}
