//! Errors in Anthropic's form.

use crate::error::ApiError;
use crate::response::json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json as object};

/// An error of a request, in Anthropic's form.
pub struct AnthropicError(ApiError);

impl From<ApiError> for AnthropicError {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl IntoResponse for AnthropicError {
    fn into_response(self) -> Response {
        let body = error_object(&self.0);
        // Its headers say when to come again.
        let (mut parts, _) = self.0.into_response().into_parts();
        let (written, body) = json(&body).into_parts();
        parts.headers.extend(written.headers);
        parts.headers.remove(axum::http::header::CONTENT_LENGTH);
        Response::from_parts(parts, body)
    }
}

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
    object!({"type": "error", "error": {"type": kind, "message": error.message()}})
}
