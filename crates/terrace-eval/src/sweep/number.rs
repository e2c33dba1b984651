//! Numbers in a journal. JSON has no infinite ones, which a type that breaks the model has as its
//! perplexity: they are written as texts.

use serde::{Deserialize, Deserializer, Serializer};

/// Writes a number, or its name.
pub fn serialize<S: Serializer>(number: &f64, to: S) -> Result<S::Ok, S::Error> {
    if number.is_finite() { to.serialize_f64(*number) } else { to.collect_str(number) }
}

/// Reads a number, or its name. Journals of earlier versions have `null` for what is not finite.
///
/// # Errors
/// It is neither.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a number, \"inf\", \"-inf\" or \"NaN\"")]
    enum Either {
        Number(f64),
        Text(String),
        None,
    }
    match Either::deserialize(from)? {
        Either::Number(number) => Ok(number),
        Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
        Either::None => Ok(f64::NAN),
    }
}
