//! API keys.

use axum::http::HeaderMap;
use sha2::{Digest, Sha256};

/// Digests of the keys: the time that it takes to compare them says nothing about a key.
pub struct Keys {
    users: Vec<[u8; 32]>,
    /// Keys of whoever runs the server.
    admins: Vec<[u8; 32]>,
}

impl Keys {
    /// Stores digests of these keys. If there are no `users`, most requests need no key. If there are
    /// no `admins`, requests that change the server's state need no other key than the rest.
    pub fn new(users: &[String], admins: &[String]) -> Self {
        let digests = |keys: &[String]| keys.iter().map(|key| digest(key)).collect();
        Self { users: digests(users), admins: digests(admins) }
    }

    /// Returns true if most requests need no key.
    pub const fn are_none(&self) -> bool {
        self.users.is_empty()
    }

    /// Returns true if a request with these headers may be answered if it changes nothing of the server.
    pub fn allow(&self, headers: &HeaderMap) -> bool {
        self.are_none()
            || sent(headers).is_some_and(|key| self.users.contains(&key) || self.admins.contains(&key))
    }

    /// Returns true if a request with these headers may change the server's state.
    pub fn allow_changes(&self, headers: &HeaderMap) -> bool {
        match self.admins.is_empty() {
            true => self.allow(headers),
            false => sent(headers).is_some_and(|key| self.admins.contains(&key)),
        }
    }
}

/// The digest of the key in these headers: OpenAI's clients send `Authorization: Bearer KEY`, and
/// Anthropic's `x-api-key: KEY`.
fn sent(headers: &HeaderMap) -> Option<[u8; 32]> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text("authorization").and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    bearer.or(text("x-api-key")).map(digest)
}

/// Returns true if these headers have a key, right or wrong.
pub fn has_key(headers: &HeaderMap) -> bool {
    sent(headers).is_some()
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
        let keys = Keys::new(&["one".into(), "two".into()], &[]);
        assert!(keys.allow(&headers("authorization", "Bearer one")));
        assert!(keys.allow(&headers("authorization", "bearer two")));
        assert!(keys.allow(&headers("x-api-key", "two")));
        for wrong in ["Bearer three", "Bearer ", "Basic one", "one", "Bearer one two"] {
            assert!(!keys.allow(&headers("authorization", wrong)), "{wrong}");
            assert!(!keys.allow_changes(&headers("authorization", wrong)), "{wrong}");
        }
        assert!(!keys.allow(&HeaderMap::new()));
        assert!(keys.allow_changes(&headers("x-api-key", "two")), "there is no other key for changes");
        let none = Keys::new(&[], &[]);
        assert!(none.allow(&HeaderMap::new()) && none.allow_changes(&HeaderMap::new()));
    }

    #[test]
    fn changes_need_the_admins_key_if_there_is_one() {
        let bearer = |key: &str| headers("authorization", &format!("Bearer {key}"));
        let both = Keys::new(&["user".into()], &["admin".into()]);
        let only = Keys::new(&[], &["admin".into()]);
        assert!(both.allow(&bearer("user")) && both.allow(&bearer("admin")) && !both.allow(&bearer("x")));
        assert!(only.allow(&HeaderMap::new()) && only.allow(&bearer("x")));
        for keys in [both, only] {
            assert!(
                keys.allow_changes(&bearer("admin")) && keys.allow_changes(&headers("x-api-key", "admin"))
            );
            assert!(!keys.allow_changes(&bearer("user")) && !keys.allow_changes(&HeaderMap::new()));
        }
    }
}
