//! The prompt for a gap in a text, in the form in which models of code learn it:
//!
//! ```text
//! REPOSITORY myproject FILE name text ... FILE filename PREFIX text SUFFIX text MIDDLE
//! ```

use super::Client;
use super::body::{Fields, wrong};
use super::prompt;
use crate::app::Ready;
use crate::error::ApiError;
use serde_json::Value;
use terrace_ggml::llama::{FimTokens, Token};
use terrace_serving::Prompt;

/// Separates other texts where the model has no token for files.
const SNIPPET: &str = "\n\n--- snippet ---\n\n";
/// Maximum number of other texts.
const MOST_EXTRA: usize = 1024;

/// The tokens without which no gap can be described.
#[derive(Clone, Copy)]
struct Marks {
    prefix: Token,
    suffix: Token,
    middle: Token,
}

impl Marks {
    fn of(fim: &FimTokens) -> Result<Self, ApiError> {
        match (fim.prefix, fim.suffix, fim.middle) {
            (Some(prefix), Some(suffix), Some(middle)) => Ok(Self { prefix, suffix, middle }),
            (prefix, suffix, middle) => {
                let missing = [(prefix, "prefix"), (suffix, "suffix"), (middle, "middle")];
                let missing: Vec<&str> =
                    missing.into_iter().filter(|(token, _)| token.is_none()).map(|(_, name)| name).collect();
                let message = format!(
                    "infill is not supported by this model: it has no tokens for {}",
                    missing.join(", ")
                );
                Err(ApiError::not_supported("no_fim_tokens", message))
            }
        }
    }
}

/// The parts of a prompt, as tokens.
struct Parts {
    /// Other files.
    extra: Vec<i32>,
    prefix: Vec<i32>,
    suffix: Vec<i32>,
    /// The beginning of the text for the gap.
    prompt: Vec<i32>,
}

/// Number of tokens that the parts may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    /// Prefix, suffix and prompt together.
    near: usize,
    extra: usize,
}

impl Room {
    /// As llama-server divides a context: a batch for what is near the gap, and what is left for
    /// other files. An answer of `n_max` tokens has room twice.
    fn of(context: usize, batch: usize, n_max: Option<usize>) -> Self {
        let near = batch.min(context / 2);
        let answer = n_max.map_or(context / 8, |n| n.saturating_mul(2));
        Self { near, extra: (context - near).saturating_sub(answer) }
    }
}

/// The prompt that `input_prefix`, `input_suffix`, `input_extra` and `prompt` ask for.
///
/// # Errors
/// The model has no tokens for gaps, or a field is missing or wrong.
pub fn infill(fields: &mut Fields, n_max: Option<usize>, ready: &Ready) -> Result<Prompt, ApiError> {
    let (fim, facts) = (&ready.facts.fim, &ready.facts);
    let marks = Marks::of(fim)?;
    let mut part = |name: &'static str| mixed(name, fields.required(name)?, ready);
    let (prefix, suffix) = (part("input_prefix")?, part("input_suffix")?);
    let prompt = fields.text("prompt")?.unwrap_or_default();
    let parts = Parts {
        extra: extra(fields.take("input_extra"), fim, ready)?,
        prefix,
        suffix,
        prompt: tokens(&prompt, true, ready)?,
    };
    let room = Room::of(facts.context, facts.plan.batch as usize, n_max);
    prompt::known(parts.join(marks, facts.leading, room), ready)
}

impl Parts {
    /// Joins the parts. Of what does not fit, that which is farthest from the gap is left out.
    fn join(self, marks: Marks, leading: Option<i32>, room: Room) -> Vec<i32> {
        let Self { extra, prefix, suffix, prompt } = self;
        let quarter = room.near / 4;
        let prefix = &prefix[prefix.len().saturating_sub(3 * quarter)..];
        let suffix = &suffix[..suffix.len().min(quarter.saturating_sub(2 + prompt.len()))];
        let extra = &extra[extra.len().saturating_sub(room.extra)..];
        let mut all = extra.to_vec();
        all.extend(leading);
        all.push(marks.prefix.0);
        all.extend(prefix);
        all.extend(prompt);
        all.push(marks.suffix.0);
        all.extend(suffix);
        all.push(marks.middle.0);
        all
    }
}

/// The other files, each an object with `text` and perhaps `filename`.
fn extra(value: Option<Value>, fim: &FimTokens, ready: &Ready) -> Result<Vec<i32>, ApiError> {
    let files = match value {
        None => Vec::new(),
        Some(Value::Array(files)) => files,
        Some(other) => return Err(wrong("input_extra", &other, "an array of objects")),
    };
    if files.len() > MOST_EXTRA {
        let message =
            format!("`input_extra` has {} texts, but at most {MOST_EXTRA} are allowed", files.len());
        return Err(ApiError::field("input_extra", message));
    }
    let mut all = Vec::new();
    if let Some(repository) = fim.repository {
        all.push(repository.0);
        all.extend(tokens("myproject\n", false, ready)?);
    }
    let name_of = |name: &str, all: &mut Vec<i32>| {
        if let Some(file) = fim.file {
            all.push(file.0);
            all.extend(tokens(&format!("{name}\n"), false, ready)?);
        }
        Ok::<_, ApiError>(())
    };
    for (number, file) in files.into_iter().enumerate() {
        let place = format!("input_extra[{number}]");
        let mut file = Fields::within(&place, file)?;
        let text = file.text("text")?;
        let text = text.ok_or_else(|| ApiError::field(&place, format!("`{place}.text` is missing")))?;
        let name = file.text("filename")?.unwrap_or_else(|| "tmp".into());
        // Clients also say when they have seen the text.
        file.take("time");
        file.finish()?;
        if fim.file.is_none() {
            all.extend(tokens(SNIPPET, false, ready)?);
        }
        name_of(&name, &mut all)?;
        all.extend(tokens(&text, false, ready)?);
    }
    name_of("filename", &mut all)?;
    Ok(all)
}

/// A text, tokens, or a list of both.
fn mixed(place: &str, value: Value, ready: &Ready) -> Result<Vec<i32>, ApiError> {
    match value {
        Value::String(text) => tokens(&text, false, ready),
        Value::Array(values) => {
            let mut all = Vec::new();
            for value in values {
                match value {
                    Value::String(text) => all.extend(tokens(&text, false, ready)?),
                    other => all.extend(prompt::tokens(place, &[other])?),
                }
            }
            Ok(all)
        }
        other => Err(wrong(place, &other, "a string or an array of tokens")),
    }
}

/// The tokens of a text of any length.
fn tokens(text: &str, parse_special: bool, ready: &Ready) -> Result<Vec<i32>, ApiError> {
    let client = Client::here();
    Ok(ready.ask(|serving| serving.tokenize(text, false, parse_special, &|| client.waits()))??)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: Marks = Marks { prefix: Token(101), suffix: Token(102), middle: Token(103) };

    fn join(room: Room) -> Vec<i32> {
        let parts = Parts {
            extra: vec![1, 2, 3],
            prefix: (10..20).collect(),
            suffix: (20..30).collect(),
            prompt: vec![7],
        };
        parts.join(MARKS, Some(100), room)
    }

    #[test]
    fn the_parts_are_in_order() {
        let mut wanted = vec![1, 2, 3, 100, 101];
        wanted.extend(10..20);
        wanted.extend([7, 102]);
        wanted.extend(20..30);
        wanted.push(103);
        assert_eq!(join(Room { near: 100, extra: 100 }), wanted);
    }

    #[test]
    fn what_is_farthest_from_the_gap_is_left_out() {
        let near = join(Room { near: 20, extra: 1 });
        assert_eq!(near, [3, 100, 101, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 7, 102, 20, 21, 103]);
        let nearer = join(Room { near: 8, extra: 0 });
        assert_eq!(nearer, [100, 101, 14, 15, 16, 17, 18, 19, 7, 102, 103]);
    }

    #[test]
    fn the_answer_has_room() {
        assert_eq!(Room::of(4096, 2048, Some(100)), Room { near: 2048, extra: 1848 });
        assert_eq!(Room::of(1024, 2048, Some(100)), Room { near: 512, extra: 312 });
        assert_eq!(Room::of(1024, 2048, None), Room { near: 512, extra: 384 });
        assert_eq!(Room::of(64, 32, Some(4000)), Room { near: 32, extra: 0 });
    }

    #[test]
    fn marks_that_are_missing_are_named() {
        let some = FimTokens { suffix: Some(Token(1)), ..FimTokens::default() };
        let error = Marks::of(&some).err().unwrap();
        assert_eq!(error.status.as_u16(), 501);
        assert_eq!(
            error.message(),
            "infill is not supported by this model: it has no tokens for prefix, middle"
        );
    }
}
