//! Parts that all responses share.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// The header with the model's epoch.
pub const EPOCH: HeaderName = HeaderName::from_static("x-terrace-epoch");

/// A response with a JSON body.
pub fn json(value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).expect("plain data");
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}
