//! Prompts: turns texts, and lists of texts and tokens, into tokens.

use super::Client;
use super::body::{Fields, wrong};
use super::chat::Rendered;
use super::pictures::{MARKER, Pictures};
use crate::advice::Reason;
use crate::app::Ready;
use crate::error::ApiError;
use serde_json::Value;
use terrace_engine::{EngineError, Images, Prompted};
use terrace_serving::{Prompt, Refused};

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
pub fn known(tokens: impl Into<Prompted>, ready: &Ready) -> Result<Prompt, ApiError> {
    Prompt::new(tokens, &ready.facts).map_err(|refused| {
        let small = matches!(refused, Refused::TooLong { .. });
        ApiError::from(refused).with(ready.advise(Reason::ContextTooSmall).filter(|_| small))
    })
}

fn prompt_of(value: Value, ready: &Ready) -> Result<Prompted, ApiError> {
    match value {
        Value::String(text) => Ok(tokens_of(&text, true, ready)?.into()),
        Value::Array(values) if values.iter().all(Value::is_number) => Ok(tokens("prompt", &values)?.into()),
        Value::Array(values) => {
            let mut all = Vec::new();
            for value in values {
                match value {
                    // As llama.cpp's server: only what begins the prompt begins a document.
                    Value::String(text) => all.extend(tokens_of(&text, all.is_empty(), ready)?),
                    other => all.extend(tokens("prompt", &[other])?),
                }
            }
            Ok(all.into())
        }
        Value::Object(_) => {
            let (text, pictures) = text_of(value)?;
            read(&text, pictures.of(ready)?, true, ready)
        }
        other => Err(wrong("prompt", &other, "a string or an array of tokens")),
    }
}

/// The text of llama-server's object for a text with images, and the images.
///
/// # Errors
/// It has no text, or not as many images as places for them.
fn text_of(value: Value) -> Result<(String, Pictures), ApiError> {
    let mut prompt = Fields::within("prompt", value)?;
    let text = prompt.required_text("prompt_string")?;
    let place = prompt.place("multimodal_data");
    let mut pictures = Pictures::default();
    let data = match prompt.take("multimodal_data") {
        None => Vec::new(),
        Some(Value::Array(all)) => all,
        Some(other) => return Err(wrong(&place, &other, "an array of texts in base64")),
    };
    prompt.finish()?;
    if data.is_empty() {
        return Ok((text, pictures));
    }
    let mut parts = text.split(MARKER);
    let mut marked = parts.next().unwrap_or_default().to_owned();
    let places = parts.clone().count();
    if places != data.len() {
        let message =
            format!("`{place}` has {} images, but `prompt_string` has {MARKER} {places} times", data.len());
        return Err(ApiError::field(&place, message));
    }
    for (part, image) in parts.zip(&data) {
        let Value::String(image) = image else {
            return Err(wrong(&place, image, "an array of texts in base64"));
        };
        marked += &pictures.base64(&place, image)?;
        marked += part;
    }
    Ok((marked, pictures))
}

/// Tokenises a text in which marks stand for images.
fn read(text: &str, images: &Images, add_special: bool, ready: &Ready) -> Result<Prompted, ApiError> {
    let client = Client::here();
    let read = ready.ask(|serving| serving.read_prompt(text, images, add_special, &|| client.waits()))?;
    read.map_err(|error| failed(error, ready))
}

/// The error of a text, with a hint.
fn failed(error: EngineError, ready: &Ready) -> ApiError {
    let hint = match &error {
        EngineError::TextTooLong { .. } => ready.advise(Reason::ContextTooSmall),
        EngineError::Vision(_) => ready.advise(Reason::Engine(&error)),
        _ => None,
    };
    ApiError::from(error).with(hint)
}

/// Tokenises a text, which may have control tokens.
///
/// # Errors
/// The tokenizer fails, or the text is too long for the context.
pub fn tokens_of(text: &str, add_special: bool, ready: &Ready) -> Result<Vec<i32>, ApiError> {
    let client = Client::here();
    let tokens = ready.ask(|serving| serving.tokenize_prompt(text, add_special, &|| client.waits()))?;
    tokens.map_err(|error| failed(error, ready))
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
pub fn chat_tokens(rendered: &Rendered, ready: &Ready) -> Result<Prompt, ApiError> {
    let text = &rendered.written.prompt;
    known(read(text, &rendered.images, !ready.facts.special_tokens.begin(text), ready)?, ready)
}

/// Tokenises a text with images before it as the beginning of a document.
///
/// # Errors
/// The tokenizer fails, or the prompt is not valid for the model.
pub fn text_with(text: &str, pictures: &Pictures, ready: &Ready) -> Result<Prompt, ApiError> {
    known(read(text, pictures.of(ready)?, true, ready)?, ready)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_hold_a_text_and_an_image_for_each_place() {
        assert_eq!(text_of(json!({"prompt_string": "a", "multimodal_data": []})).unwrap().0, "a");
        let (text, _) =
            text_of(json!({"prompt_string": "a<__media__>b", "multimodal_data": ["AAEC"]})).unwrap();
        assert!(text.starts_with('a') && text.ends_with('b') && !text.contains(MARKER), "{text}");
        for (wrong, part) in [
            (json!({}), "`prompt.prompt_string` is missing"),
            (json!({"prompt_string": "a", "multimodal_data": ["AAAA"]}), "has 1 images, but"),
            (json!({"prompt_string": "<__media__>", "multimodal_data": ["A"]}), "not valid base64"),
            (json!({"prompt_string": "<__media__>", "multimodal_data": [5]}), "an array of texts in base64"),
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
