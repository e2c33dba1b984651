//! Fields that choose tokens and end answers, for several APIs.

use super::body::{Fields, wrong};
use super::prompt;
use crate::app::{App, Ready};
use crate::error::ApiError;
use serde_json::Value;
use std::ops::RangeInclusive;
use std::time::Duration;
use terrace_engine::LineLimits;
use terrace_ggml::llama::{SamplerKind, Sampling, Token};

/// Maximum number of stop strings in a request: each is searched after each token.
const MAX_STOPS: usize = 64;
/// Maximum number of samplers in a request; there are 11 kinds.
const MAX_SAMPLERS: usize = 32;
/// The least value of a token limit: -1 and -2 are llama.cpp's names for "until it ends".
const ENDLESS: i64 = -2;
/// Maximum number of alternatives that are reported beside each token.
pub const MOST_PROBS: i64 = 100;
/// Any number that has a meaning.
const ANY: RangeInclusive<f64> = -1e9..=1e9;
const PROBABILITY: RangeInclusive<f64> = 0.0..=1.0;
/// A number of tokens to look back on; -1: all.
const LOOK_BACK: RangeInclusive<i64> = -1..=i32::MAX as i64;

/// Reads the samplers' fields, which have llama-server's names in all APIs.
///
/// # Errors
/// A field is not valid.
pub fn sampling(fields: &mut Fields, app: &App, ready: &Ready) -> Result<Sampling, ApiError> {
    let mut s = app.sampling();
    let f = fields;
    number(f, &["temperature"], 0.0..=100.0, &mut s.temp)?;
    integer(f, "top_k", -1..=i64::from(i32::MAX), &mut s.top_k)?;
    number(f, &["top_p"], PROBABILITY, &mut s.top_p)?;
    number(f, &["min_p"], PROBABILITY, &mut s.min_p)?;
    number(f, &["typical_p", "typ_p", "typical"], PROBABILITY, &mut s.typical_p)?;
    number(f, &["top_n_sigma", "nsigma"], -1.0..=1e6, &mut s.top_n_sigma)?;
    number(f, &["dynatemp_range"], 0.0..=100.0, &mut s.dynatemp_range)?;
    number(f, &["dynatemp_exponent"], 0.0..=100.0, &mut s.dynatemp_exponent)?;
    number(f, &["xtc_probability"], PROBABILITY, &mut s.xtc_probability)?;
    number(f, &["xtc_threshold"], PROBABILITY, &mut s.xtc_threshold)?;
    integer(f, "min_keep", 0..=i64::from(i32::MAX), &mut s.min_keep)?;
    integer(f, "repeat_last_n", LOOK_BACK, &mut s.repeat_last_n)?;
    number(f, &["repeat_penalty", "repetition_penalty", "rep_pen"], 1e-6..=1e6, &mut s.repeat_penalty)?;
    number(f, &["frequency_penalty"], ANY, &mut s.frequency_penalty)?;
    number(f, &["presence_penalty"], ANY, &mut s.presence_penalty)?;
    number(f, &["dry_multiplier"], 0.0..=1e6, &mut s.dry_multiplier)?;
    number(f, &["dry_base"], 0.0..=1e6, &mut s.dry_base)?;
    integer(f, "dry_allowed_length", 0..=i64::from(i32::MAX), &mut s.dry_allowed_length)?;
    integer(f, "dry_penalty_last_n", LOOK_BACK, &mut s.dry_penalty_last_n)?;
    integer(f, "mirostat", 0..=2, &mut s.mirostat)?;
    number(f, &["mirostat_tau"], 0.0..=1e6, &mut s.mirostat_tau)?;
    number(f, &["mirostat_eta"], 0.0..=1e6, &mut s.mirostat_eta)?;
    number(f, &["adaptive_target"], -1.0..=1.0, &mut s.adaptive_target)?;
    number(f, &["adaptive_decay"], 0.0..=0.99, &mut s.adaptive_decay)?;
    if let Some(breakers) = f.take("dry_sequence_breakers") {
        s.dry_sequence_breakers = strings(&f.place("dry_sequence_breakers"), breakers)?;
    }
    if let Some(order) = f.take("samplers") {
        s.order = order_of(&f.place("samplers"), order)?;
    }
    s.name_adaptive();
    if let Some(bias) = f.take("logit_bias") {
        s.logit_bias = biases(&f.place("logit_bias"), bias, ready)?;
    }
    s.ignore_eos = f.flag("ignore_eos")?.unwrap_or(s.ignore_eos);
    if let Some(least) = f.integer("min_tokens", 0..=i64::from(u32::MAX))? {
        s.min_tokens = usize::try_from(least).unwrap_or(0);
    }
    if let Some(seed) = seed(f)? {
        s.seed = seed;
    }
    Ok(s)
}

/// Lines that end an answer, under llama-server's names.
///
/// # Errors
/// A field is not such a number.
pub fn lines(fields: &mut Fields) -> Result<LineLimits, ApiError> {
    let indent = fields.integer("n_indent", -1..=i64::from(i32::MAX))?;
    let time = fields.integer("t_max_predict_ms", -1..=i64::from(i32::MAX))?;
    Ok(LineLimits {
        indent: indent.and_then(|indent| usize::try_from(indent).ok()).unwrap_or(0),
        time: time.and_then(|ms| u64::try_from(ms).ok()).filter(|&ms| ms > 0).map(Duration::from_millis),
    })
}

fn number(
    fields: &mut Fields,
    names: &[&'static str],
    range: RangeInclusive<f64>,
    to: &mut f32,
) -> Result<(), ApiError> {
    for name in names {
        if let Some(value) = fields.number(name, range.clone())? {
            *to = value;
        }
    }
    Ok(())
}

fn integer(
    fields: &mut Fields,
    name: &'static str,
    range: RangeInclusive<i64>,
    to: &mut i32,
) -> Result<(), ApiError> {
    if let Some(value) = fields.integer(name, range)? {
        *to = i32::try_from(value).expect("within the range");
    }
    Ok(())
}

/// The seed; `None` for -1 as well, llama.cpp's name for a random one.
fn seed(fields: &mut Fields) -> Result<Option<u64>, ApiError> {
    let Some(value) = fields.take("seed") else { return Ok(None) };
    let whole = value.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 9e15).map(|n| n as i64);
    match (value.as_u64(), value.as_i64().or(whole)) {
        (Some(seed), _) => Ok(Some(seed)),
        (None, Some(-1)) => Ok(None),
        // Two's complement, so that all numbers of OpenAI's range are different seeds.
        (None, Some(seed)) => Ok(Some(seed.cast_unsigned())),
        (None, None) => Err(wrong(&fields.place("seed"), &value, "a whole number of 64 bits")),
    }
}

fn order_of(place: &str, value: Value) -> Result<Vec<SamplerKind>, ApiError> {
    let order: Vec<_> = match value {
        Value::String(letters) => {
            let kind = |letter: char| (letter.to_string(), SamplerKind::from_letter(letter));
            letters.chars().take(MAX_SAMPLERS + 1).map(kind).collect()
        }
        names => {
            let kind = |name: String| (name.clone(), SamplerKind::from_name(&name));
            strings(place, names)?.into_iter().take(MAX_SAMPLERS + 1).map(kind).collect()
        }
    };
    if order.len() > MAX_SAMPLERS {
        let message = format!("`{place}` has more than the {MAX_SAMPLERS} samplers that are allowed");
        return Err(ApiError::field(place, message));
    }
    let known = |(name, kind): (String, Option<SamplerKind>)| {
        kind.ok_or_else(|| {
            ApiError::field(
                place,
                format!("`{place}` contains `{name}`, which is not a sampler of llama.cpp"),
            )
        })
    };
    order.into_iter().map(known).collect()
}

/// OpenAI's object of tokens, or llama-server's list of pairs of a token or a text and a number, or
/// false: never.
fn biases(place: &str, value: Value, ready: &Ready) -> Result<Vec<(Token, f32)>, ApiError> {
    let pairs: Vec<(Value, Value)> = match value {
        Value::Object(map) => map.into_iter().map(|(token, bias)| (Value::String(token), bias)).collect(),
        Value::Array(pairs) => pairs
            .into_iter()
            .map(|pair| match pair {
                Value::Array(mut pair) if pair.len() == 2 => {
                    let bias = pair.pop().unwrap_or_default();
                    Ok((pair.pop().unwrap_or_default(), bias))
                }
                other => Err(wrong(place, &other, "a pair of a token and a number")),
            })
            .collect::<Result<_, _>>()?,
        other => return Err(wrong(place, &other, "an object, or a list of pairs")),
    };
    let mut all = Vec::new();
    for (key, bias) in pairs {
        let bias = match &bias {
            Value::Bool(false) => f32::NEG_INFINITY,
            Value::Number(number) => number.as_f64().unwrap_or_default() as f32,
            other => return Err(wrong(place, other, "a number, or false")),
        };
        all.extend(tokens_of(place, &key, ready)?.into_iter().map(|token| (Token(token), bias)));
    }
    Ok(all)
}

fn tokens_of(place: &str, key: &Value, ready: &Ready) -> Result<Vec<i32>, ApiError> {
    let number = match key {
        Value::String(text) => text.parse().ok(),
        other => other.as_i64(),
    };
    match (number, key) {
        (Some(number), _) => match i32::try_from(number).ok().filter(|&token| ready.facts.has_token(token)) {
            Some(token) => Ok(vec![token]),
            None => {
                let vocabulary = ready.facts.vocabulary;
                let message =
                    format!("`{place}` has token {number}, but the vocabulary has {vocabulary} tokens");
                Err(ApiError::field(place, message))
            }
        },
        (None, Value::String(text)) => prompt::tokens_of(text, false, ready),
        (None, other) => Err(wrong(place, other, "a token or a text")),
    }
}

/// Reads the strings that end an answer, from the first of these fields that is present.
///
/// # Errors
/// A field is neither a string nor a list of strings, or has too many.
pub fn stop(fields: &mut Fields, names: &[&'static str]) -> Result<Vec<String>, ApiError> {
    let mut found = None;
    for name in names {
        let place = fields.place(name);
        let Some(value) = fields.take(name) else { continue };
        let all = strings(&place, value)?;
        if all.len() > MAX_STOPS {
            let message = format!("`{place}` has {} strings, but at most {MAX_STOPS} are allowed", all.len());
            return Err(ApiError::field(place, message));
        }
        if all.iter().any(String::is_empty) {
            let message = format!("`{place}` contains an empty string");
            return Err(ApiError::field(place, message));
        }
        found = found.or(Some(all));
    }
    Ok(found.unwrap_or_default())
}

/// A string, or a list of strings.
fn strings(place: &str, value: Value) -> Result<Vec<String>, ApiError> {
    let values = match value {
        Value::Array(values) => values,
        one => vec![one],
    };
    let string = |value| match value {
        Value::String(text) => Ok(text),
        other => Err(wrong(place, &other, "a string or an array of strings")),
    };
    values.into_iter().map(string).collect()
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
        None => app.n_max(),
        Some(number) => usize::try_from(number).ok(),
    })
}

/// Reads how many alternatives are reported beside each token. A flag says whether any token is, if
/// `flag` is given; a number of 0 without it means none.
///
/// # Errors
/// A field is not valid.
pub fn probs(
    fields: &mut Fields,
    flag: Option<&'static str>,
    number: &'static str,
) -> Result<Option<usize>, ApiError> {
    let wanted = flag.map_or(Ok(None), |name| fields.flag(name))?;
    let top = fields.integer(number, 0..=MOST_PROBS)?.and_then(|top| usize::try_from(top).ok());
    match (flag, wanted.unwrap_or(false), top) {
        (Some(name), false, Some(1..)) => {
            Err(ApiError::field(fields.place(number), format!("`{number}` needs `{name}`: true")))
        }
        (Some(_), wanted, top) => Ok(wanted.then_some(top.unwrap_or(0))),
        (None, _, top) => Ok(top.filter(|&top| top > 0)),
    }
}

/// Reads `logprobs` of OpenAI's text completions: the number of alternatives. Some clients send a
/// flag, as for conversations.
///
/// # Errors
/// The field is neither.
pub fn text_probs(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    match fields.take("logprobs") {
        None | Some(Value::Bool(false)) => fields.integer("n_probs", 0..=MOST_PROBS).map(|top| match top {
            None | Some(0) => None,
            Some(top) => usize::try_from(top).ok(),
        }),
        Some(Value::Bool(true)) => Ok(Some(0)),
        Some(number) => {
            let top = number.as_u64().filter(|&top| top <= MOST_PROBS.cast_unsigned());
            let top = top.ok_or_else(|| {
                let message = format!("`logprobs` is {number}, but must be a number from 0 to {MOST_PROBS}");
                ApiError::field(fields.place("logprobs"), message)
            })?;
            Ok(usize::try_from(top).ok())
        }
    }
}
