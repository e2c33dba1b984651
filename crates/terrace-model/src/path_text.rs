//! Paths in JSON, which has text only.

use serde::Serializer;
use std::path::Path;

/// Writes a path as text. What is not UTF-8 becomes U+FFFD, as in messages.
///
/// # Errors
/// The serializer's own.
pub fn serialize<S: Serializer>(path: &impl AsRef<Path>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&path.as_ref().to_string_lossy())
}

/// Writes a path that may be absent, as [`serialize`] does.
///
/// # Errors
/// The serializer's own.
pub fn serialize_option<P: AsRef<Path>, S: Serializer>(path: &Option<P>, to: S) -> Result<S::Ok, S::Error> {
    match path {
        Some(path) => serialize(path, to),
        None => to.serialize_none(),
    }
}
