//! Errors in Ollama's form.

use crate::error::ApiError;
use crate::response::json;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json as object};

/// An error in Ollama's form, which is only its text.
pub struct OllamaError(ApiError);

impl From<ApiError> for OllamaError {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl IntoResponse for OllamaError {
    fn into_response(self) -> Response {
        let body = error_object(&self.0);
        let (mut parts, _) = self.0.into_response().into_parts();
        let (of_body, body) = json(&body).into_parts();
        parts.headers.extend(of_body.headers);
        parts.headers.remove(axum::http::header::CONTENT_LENGTH);
        Response::from_parts(parts, body)
    }
}

/// The object for an error within a stream.
pub fn error_object(error: &ApiError) -> Value {
    object!({"error": error.message()})
}
