//! The description of the server's API.

use crate::openapi::{Route, document};
use axum::Extension;
use axum::body::Bytes;
use axum::http::header;
use axum::response::{IntoResponse, Response};

/// An OpenAPI document, as text.
#[derive(Clone)]
pub struct Document(Bytes);

impl Document {
    /// Describes these routes.
    pub fn of(routes: &[Route]) -> Self {
        Self(document(routes).to_string().into())
    }
}

/// `GET /openapi.json`.
pub async fn openapi(Extension(Document(text)): Extension<Document>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
