//! Prompts: turns texts, and lists of texts and tokens, into tokens.

use super::Client;
use super::body::{Fields, wrong};
use crate::advice::Reason;
use crate::app::Ready;
use crate::error::ApiError;
use serde_json::Value;
use terrace_engine::EngineError;
use terrace_engine::serving::{Prompt, Refused};

/// Maximum number of prompts in a request.
const MOST_PROMPTS: usize = 128;

/// The prompts of a completion: texts, tokens, or lists that mix both.
///
/// # Errors
/// There is no prompt, or one is not valid.
pub fn prompts(fields: &mut Fields, ready: &Ready) -> Result<Vec<Prompt>, ApiError> {
    let value = fields.required("prompt")?;
    let several = |values: &[Value]| {
        // A list of numbers is one prompt, and one of numbers and texts as well.
        !values.iter().any(Value::is_number)
            && values.iter().all(|value| value.is_string() || value.is_array() || value.is_object())
    };
    match value {
        Value::Array(values) if values.is_empty() => {
            Err(ApiError::field("prompt", "`prompt` is an empty array"))
        }
        Value::Array(values) if several(&values) => {
            if values.len() > MOST_PROMPTS {
                let message =
                    format!("`prompt` has {} prompts, but at most {MOST_PROMPTS} are allowed", values.len());
                return Err(ApiError::field("prompt", message));
            }
            values.into_iter().map(|value| known(prompt_of(value, ready)?, ready)).collect()
        }
        one => Ok(vec![known(prompt_of(one, ready)?, ready)?]),
    }
}

/// Checks that the model can be given these tokens as a prompt.
///
/// # Errors
/// They are none or too many, or not the vocabulary's.
pub fn known(tokens: Vec<i32>, ready: &Ready) -> Result<Prompt, ApiError> {
    Prompt::new(tokens, &ready.facts).map_err(|refused| {
        let small = matches!(refused, Refused::TooLong { .. });
        ApiError::from(refused).with(ready.advise(Reason::ContextTooSmall).filter(|_| small))
    })
}

fn prompt_of(value: Value, ready: &Ready) -> Result<Vec<i32>, ApiError> {
    match value {
        Value::String(text) => tokens_of(&text, true, ready),
        Value::Array(values) if values.iter().all(Value::is_number) => tokens("prompt", &values),
        Value::Array(values) => {
            let mut all = Vec::new();
            for value in values {
                match value {
                    // As llama.cpp's server: only what begins the prompt begins a document.
                    Value::String(text) => all.extend(tokens_of(&text, all.is_empty(), ready)?),
                    other => all.extend(tokens("prompt", &[other])?),
                }
            }
            Ok(all)
        }
        Value::Object(_) => tokens_of(&text_of(value)?, true, ready),
        other => Err(wrong("prompt", &other, "a string or an array of tokens")),
    }
}

/// The text of llama-server's object for a text with images.
///
/// # Errors
/// It has no text, or images.
fn text_of(value: Value) -> Result<String, ApiError> {
    let mut prompt = Fields::within("prompt", value)?;
    let text = prompt.required_text("prompt_string")?;
    if prompt.take("multimodal_data").is_some_and(|data| data.as_array().is_none_or(|all| !all.is_empty())) {
        let message = "`prompt` has `multimodal_data`: this server reads no images";
        return Err(ApiError::unsupported("prompt", message));
    }
    prompt.finish()?;
    Ok(text)
}

/// Tokenises a text as the beginning of a document.
///
/// # Errors
/// The tokenizer fails, or the prompt is not valid for the model.
pub fn text_tokens(text: &str, ready: &Ready) -> Result<Prompt, ApiError> {
    known(tokens_of(text, true, ready)?, ready)
}

/// Tokenises a text, which may have control tokens.
///
/// # Errors
/// The tokenizer fails, or the text is too long for the context.
pub fn tokens_of(text: &str, add_special: bool, ready: &Ready) -> Result<Vec<i32>, ApiError> {
    let client = Client::here();
    let tokens = ready.ask(|serving| serving.tokenize_prompt(text, add_special, &|| client.waits()))?;
    tokens.map_err(|error| {
        let small = matches!(error, EngineError::TextTooLong { .. });
        ApiError::from(error).with(ready.advise(Reason::ContextTooSmall).filter(|_| small))
    })
}

/// Reads tokens by number. Whether the vocabulary has them is not checked.
///
/// # Errors
/// A value is not a token.
pub fn tokens(place: &str, values: &[Value]) -> Result<Vec<i32>, ApiError> {
    let token = |value: &Value| {
        let token = value.as_i64().and_then(|token| i32::try_from(token).ok());
        token.ok_or_else(|| {
            ApiError::field(place, format!("`{place}` contains {value}, which is not a token"))
        })
    };
    values.iter().map(token).collect()
}

/// Tokenises a rendered conversation.
///
/// # Errors
/// The tokenizer fails, or the prompt is not valid for the model.
pub fn chat_tokens(text: &str, ready: &Ready) -> Result<Prompt, ApiError> {
    known(tokens_of(text, !ready.facts.special_tokens.begin(text), ready)?, ready)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_hold_a_text_and_no_images() {
        assert_eq!(text_of(json!({"prompt_string": "a", "multimodal_data": []})).unwrap(), "a");
        for (wrong, part) in [
            (json!({}), "`prompt.prompt_string` is missing"),
            (json!({"prompt_string": "a", "multimodal_data": ["AAAA"]}), "reads no images"),
            (json!({"prompt_string": "a", "image": 1}), "`prompt.image`"),
        ] {
            let error = text_of(wrong).unwrap_err();
            assert!(error.message().contains(part), "{}", error.message());
        }
    }

    #[test]
    fn tokens_are_numbers_of_tokens() {
        assert_eq!(tokens("prompt", &[json!(1), json!(2)]).unwrap(), [1, 2]);
        for wrong in [json!("a"), json!(1.5), json!(1_u64 << 40), json!(null)] {
            assert!(tokens("prompt", &[json!(1), wrong]).is_err());
        }
    }
}
