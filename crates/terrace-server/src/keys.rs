//! API keys.

use axum::http::HeaderMap;
use sha2::{Digest, Sha256};

/// Digests of the keys: the time that it takes to compare them says nothing about a key.
pub struct Keys(Vec<[u8; 32]>);

impl Keys {
    /// Stores digests of these keys. If there are none, no request needs a key.
    pub fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| digest(key)).collect())
    }

    /// Whether no request needs a key.
    pub fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a request with these headers has a valid key.
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
}
