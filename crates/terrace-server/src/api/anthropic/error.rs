//! Errors in Anthropic's form.

use crate::error::ApiError;
use axum::http::StatusCode;
use serde_json::{Value, json as object};

/// Anthropic's error object.
pub fn error_object(error: &ApiError) -> Value {
    let kind = match error.status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::NOT_FOUND => "not_found_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => "timeout_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "api_error",
    };
    let message = match error.tokens() {
        // Clients look for these words, and shorten the conversation.
        Some((prompt, context)) => {
            format!("prompt is too long: {prompt} tokens > {context} maximum ({})", error.message())
        }
        None => error.message().to_owned(),
    };
    object!({"type": "error", "error": {"type": kind, "message": message}})
}
