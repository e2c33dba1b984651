//! Time that a model is to stay loaded without requests, in the form of Ollama's clients.

use crate::error::ApiError;
use serde_json::Value;
use std::time::Duration;

/// Time that Ollama's clients are told for a model that is not unloaded for its age.
pub const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Time that a model stays loaded without requests; `None`: until others need its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep(pub Option<Duration>);

impl Keep {
    /// It is unloaded at once.
    pub const NOT: Self = Self(Some(Duration::ZERO));
}

/// Reads the time that a model is to stay loaded, in the form of Ollama's clients: seconds, or text like `5m` or `1h30m`;
/// less than 0 is for ever.
///
/// # Errors
/// It is neither.
pub fn keep_of(value: &Value) -> Result<Keep, ApiError> {
    let seconds = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => duration(text),
        _ => None,
    };
    let wrong = || ApiError::field("keep_alive", "`keep_alive` must be seconds, or text like `5m` or `-1`");
    match seconds.ok_or_else(wrong)? {
        seconds if seconds < 0.0 => Ok(Keep(None)),
        seconds => Ok(Keep(Some(Duration::try_from_secs_f64(seconds).unwrap_or(FOR_EVER)))),
    }
}

/// Seconds of a duration in Go's form.
fn duration(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    if let Ok(seconds) = rest.parse::<f64>() {
        return Some(sign * seconds);
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        seconds += number
            * match &rest[..end] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                _ => return None,
            };
        rest = &rest[end..];
    }
    Some(sign * seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as object;

    #[test]
    fn times_are_seconds_or_gos() {
        let seconds = |value: Value| keep_of(&value).unwrap().0.map(|time| time.as_secs_f64());
        assert_eq!(seconds(object!(300)), Some(300.0));
        assert_eq!(seconds(object!(-1)), None);
        assert_eq!(seconds(object!("-1m")), None);
        assert_eq!(seconds(object!("5m")), Some(300.0));
        assert_eq!(seconds(object!("1h30m")), Some(5400.0));
        assert_eq!(seconds(object!("1.5s")), Some(1.5));
        assert_eq!(seconds(object!("250ms")), Some(0.25));
        assert_eq!(seconds(object!("0")), Some(0.0));
        for wrong in [object!("soon"), object!("5x"), object!("m"), object!([1]), object!(true)] {
            assert!(keep_of(&wrong).is_err(), "{wrong}");
        }
    }
}
