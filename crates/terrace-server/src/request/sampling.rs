//! Fields that choose tokens and end answers, for several APIs.

use super::body::{Fields, wrong};
use crate::app::App;
use crate::error::ApiError;
use serde_json::Value;
use terrace_ggml::llama::Sampling;

/// Maximum number of stop strings in a request: each is searched after each token.
const MAX_STOPS: usize = 64;
/// The least value of a token limit: -1 and -2 are llama.cpp's names for "until it ends".
const ENDLESS: i64 = -2;

/// Reads the sampler's fields, which have the same names in all APIs.
///
/// # Errors
/// A field is not valid.
pub fn sampling(fields: &mut Fields, app: &App) -> Result<Sampling, ApiError> {
    let default = app.sampling();
    let probability = 0.0..=1.0;
    Ok(Sampling {
        temp: fields.number("temperature", 0.0..=100.0)?.unwrap_or(default.temp),
        top_k: fields.integer("top_k", -1..=i64::from(i32::MAX))?.map_or(default.top_k, |k| k as i32),
        top_p: fields.number("top_p", probability.clone())?.unwrap_or(default.top_p),
        min_p: fields.number("min_p", probability)?.unwrap_or(default.min_p),
        // The lower 32 bits of OpenAI's range; -1 is llama.cpp's name for a random seed.
        seed: fields
            .integer("seed", i64::MIN..=i64::MAX)?
            .filter(|&seed| seed != -1)
            .map_or(default.seed, |seed| seed as u32),
    })
}

/// Reads the strings that end an answer.
///
/// # Errors
/// The field is neither a string nor a list of strings.
pub fn stop(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let place = fields.place("stop");
    let strings = match fields.take("stop") {
        None => Vec::new(),
        Some(Value::Array(values)) => values,
        Some(one) => vec![one],
    };
    if strings.len() > MAX_STOPS {
        return Err(ApiError::field(
            place,
            format!("`stop` has {} strings, but at most {MAX_STOPS} are allowed", strings.len()),
        ));
    }
    let string = |value| match value {
        Value::String(text) if text.is_empty() => {
            Err(ApiError::field("stop", "`stop` contains an empty string"))
        }
        Value::String(text) => Ok(text),
        other => Err(wrong(&place, &other, "a string or an array of strings")),
    };
    strings.into_iter().map(string).collect()
}

/// Reads the token limit of an answer, from the first of these fields that is present.
///
/// # Errors
/// The field is not a number of tokens.
pub fn n_max(fields: &mut Fields, app: &App, names: &[&'static str]) -> Result<Option<usize>, ApiError> {
    let mut found = None;
    for name in names {
        found = found.or(fields.integer(name, ENDLESS..=i64::from(u32::MAX))?);
    }
    Ok(match found {
        None => app.n_max,
        Some(number) => usize::try_from(number).ok(),
    })
}
