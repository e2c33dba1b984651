//! Who may ask: API keys, and web pages' origins.

use super::app::App;
use super::error::ApiError;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Paths that need no key: what tells whether the server is there, and a page that asks for the key itself.
const PUBLIC: [&str; 5] = ["/", "/health", "/v1/health", "/v1/models", "/models"];

/// The keys, of which digests are kept: comparing those tells nothing of a key by the time it takes.
pub struct Keys(Vec<[u8; 32]>);

impl Keys {
    /// Of these keys; none: nobody needs one.
    pub fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| digest(key)).collect())
    }

    /// Whether everybody may ask.
    pub fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a request with these headers may ask.
    pub fn allow(&self, headers: &HeaderMap) -> bool {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let bearer = text("authorization").and_then(|value| {
            let (scheme, key) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
        });
        self.are_none() || bearer.or(text("x-api-key")).is_some_and(|key| self.0.contains(&digest(key)))
    }
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// Lets requests pass that may be answered.
///
/// # Errors
/// 401 without a key where one is needed; 403 for web pages of others, which browsers let send requests, though not read answers.
pub async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Result<Response, ApiError> {
    let headers = request.headers();
    let public = PUBLIC.contains(&request.uri().path()) && *request.method() == Method::GET;
    if !public && !app.keys.allow(headers) {
        return Err(ApiError::unauthorized());
    }
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or("an unreadable origin"));
    if let Some(origin) = origin
        && !public
        && !is_own(origin, headers)
        && !app.cors_origins.iter().any(|allowed| allowed == "*" || allowed == origin)
    {
        return Err(ApiError::foreign_origin(origin));
    }
    Ok(next.run(request).await)
}

/// Whether the page came from the server itself.
fn is_own(origin: &str, headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    origin.split_once("://").is_some_and(|(_, from)| host == Some(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), value.parse().unwrap())])
    }

    #[test]
    fn any_of_the_keys_will_do() {
        let keys = Keys::new(&["one".into(), "two".into()]);
        assert!(keys.allow(&headers("authorization", "Bearer one")));
        assert!(keys.allow(&headers("authorization", "bearer two")));
        assert!(keys.allow(&headers("x-api-key", "two")));
        for wrong in ["Bearer three", "Bearer ", "Basic one", "one", "Bearer one two"] {
            assert!(!keys.allow(&headers("authorization", wrong)), "{wrong}");
        }
        assert!(!keys.allow(&HeaderMap::new()));
        assert!(Keys::new(&[]).allow(&HeaderMap::new()));
    }

    #[test]
    fn the_servers_own_page_may_ask() {
        let host = headers("host", "localhost:8080");
        assert!(is_own("http://localhost:8080", &host));
        assert!(!is_own("http://localhost:8081", &host));
        assert!(!is_own("null", &host));
        assert!(!is_own("https://evil.example", &host));
    }
}
