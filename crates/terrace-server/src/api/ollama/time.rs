//! Times in Ollama's format.

use chrono::{DateTime, SecondsFormat, Utc};

/// RFC 3339, with microseconds.
pub fn time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}
