//! Texts to embed: turns strings, and lists of strings and tokens, into tokens.

use super::Client;
use super::body::wrong;
use super::prompt::{self, tokens_of};
use crate::app::Ready;
use crate::error::ApiError;
use serde_json::Value;

/// The texts of a field: one, or a list of several. A list with numbers is one text.
///
/// # Errors
/// There is none, or one is neither a text nor tokens.
pub fn texts(place: &str, value: Value, ready: &Ready) -> Result<Vec<Vec<i32>>, ApiError> {
    match value {
        Value::Array(values) if values.is_empty() => {
            Err(ApiError::field(place, format!("`{place}` is an empty array")))
        }
        Value::Array(values) if !values.iter().any(Value::is_number) => {
            values.into_iter().map(|value| text(place, value, ready)).collect()
        }
        one => Ok(vec![text(place, one, ready)?]),
    }
}

/// One text: a string, tokens, a list of both, or an object with a text.
fn text(place: &str, value: Value, ready: &Ready) -> Result<Vec<i32>, ApiError> {
    let tokens = match value {
        Value::String(text) => tokens_of(&text, true, ready)?,
        Value::Array(values) => {
            let mut all = Vec::new();
            for value in values {
                match value {
                    // As llama.cpp's server: only what begins the text begins a document.
                    Value::String(text) => all.extend(tokens_of(&text, all.is_empty(), ready)?),
                    other => all.extend(prompt::tokens(place, &[other])?),
                }
            }
            all
        }
        Value::Object(mut map) => match (map.remove("prompt_string"), map.remove("content")) {
            (Some(Value::String(text)), None) => tokens_of(&text, true, ready)?,
            (None, Some(Value::Array(parts))) => tokens_of(&joined(place, &parts)?, true, ready)?,
            _ => {
                let message = format!("`{place}` has an object without `prompt_string` or a list `content`");
                return Err(ApiError::field(place, message));
            }
        },
        other => return Err(wrong(place, &other, "a string or an array of tokens")),
    };
    if tokens.is_empty() {
        return Err(ApiError::field(place, format!("`{place}` has an empty text")));
    }
    Ok(tokens)
}

/// The text of OpenAI's parts of a message.
fn joined(place: &str, parts: &[Value]) -> Result<String, ApiError> {
    let text = |part: &Value| match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text"), Some(text)) => Ok(text.to_owned()),
        _ => Err(ApiError::field(place, format!("`{place}` has a part that is not text"))),
    };
    parts.iter().map(text).collect()
}

/// The tokens of a text of any length, cut to what can be embedded.
///
/// # Errors
/// The tokenizer fails, or the model does not embed.
pub fn cut(text: &str, ready: &Ready) -> Result<Vec<i32>, ApiError> {
    let client = Client::here();
    let mut tokens = ready.ask(|serving| serving.tokenize(text, true, true, &|| client.waits()))??;
    if let Some(embedding) = ready.facts.embedding.as_ref().filter(|facts| tokens.len() > facts.most) {
        // What ends a text stays at its end.
        let pair = &embedding.pair;
        let last = tokens
            .last()
            .copied()
            .filter(|&last| [pair.end, pair.separator].iter().flatten().any(|token| token.0 == last));
        tokens.truncate(embedding.most);
        if let (Some(last), Some(end)) = (last, tokens.last_mut()) {
            *end = last;
        }
    }
    Ok(tokens)
}

/// The tokens that ask how well a document answers a query.
///
/// # Errors
/// The tokenizer fails, or the model does not embed.
pub fn pair(query: &str, document: &str, ready: &Ready) -> Result<Vec<i32>, ApiError> {
    let Some(embedding) = &ready.facts.embedding else { return Err(ApiError::no_embeddings()) };
    let client = Client::here();
    let tokens = |text: &str, parse_special| {
        let tokens = ready.ask(|serving| serving.tokenize(text, false, parse_special, &|| client.waits()))?;
        Ok::<_, ApiError>(tokens?)
    };
    if let Some(template) = &embedding.rank_template {
        return tokens(&filled(template, query, document), true);
    }
    let pair = &embedding.pair;
    let mut all: Vec<i32> = pair.begin.iter().map(|token| token.0).collect();
    all.extend(tokens(query, false)?);
    all.extend(pair.end.iter().chain(&pair.separator).map(|token| token.0));
    all.extend(tokens(document, false)?);
    all.extend(pair.end.iter().map(|token| token.0));
    Ok(all)
}

/// Puts texts into a template, without looking for places in them.
fn filled(template: &str, query: &str, document: &str) -> String {
    let query_filled = |part: &str| part.split("{query}").collect::<Vec<_>>().join(query);
    template.split("{document}").map(query_filled).collect::<Vec<_>>().join(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_in_a_template_are_left_as_they_are() {
        let template = "Q: {query} D: {document} ({query})";
        assert_eq!(filled(template, "{document}?", "{query}!"), "Q: {document}? D: {query}! ({document}?)");
    }

    #[test]
    fn parts_are_texts() {
        let text = |text: &str| json!({"type": "text", "text": text});
        assert_eq!(joined("input", &[text("a "), text("b")]).unwrap(), "a b");
        assert!(joined("input", &[json!({"type": "image_url"})]).is_err());
    }
}
