//! Parts that all responses share.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::hash::{BuildHasher, RandomState};

/// The header with the model's epoch.
pub const EPOCH: HeaderName = HeaderName::from_static("x-terrace-epoch");
/// The header with the lossy settings in effect, `setting=value` each. On answers whose form has no room
/// for them.
pub const LOSSY: HeaderName = HeaderName::from_static("x-terrace-lossy");

/// The header with the keywords of the request's JSON schemas that the answer need not follow.
pub const UNENFORCED: HeaderName = HeaderName::from_static("x-terrace-unenforced");

/// A response with a JSON body.
pub fn json(value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).expect("plain data");
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}

/// An identification that nothing else has: the prefix, and 32 random hexadecimal digits.
pub fn random_id(prefix: &str) -> String {
    // Each state has a random seed from the system.
    let random = || RandomState::new().hash_one(0_u8);
    format!("{prefix}{:016x}{:016x}", random(), random())
}
