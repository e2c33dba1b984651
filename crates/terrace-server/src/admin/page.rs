//! A page that shows the server's state, with a chat.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// `GET /`: a page that shows the server's state, with a chat. It loads nothing from other servers.
pub async fn page() -> Response {
    const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
        base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    let headers =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
    (headers, include_str!("page.html")).into_response()
}
