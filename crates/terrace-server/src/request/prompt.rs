//! Prompts: turns texts, tokens and conversations into tokens.

use super::Client;
use super::body::{Fields, wrong};
use crate::advice::Reason;
use crate::app::Ready;
use crate::error::ApiError;
use serde_json::Value;
use terrace_engine::serving::{Prompt, Refused};
use terrace_engine::{EngineError, Message};

/// The prompt of a completion: a text or tokens.
///
/// # Errors
/// There is no prompt, or more than one.
pub fn prompt(fields: &mut Fields, ready: &Ready) -> Result<Prompt, ApiError> {
    let value = fields.take("prompt").ok_or_else(|| ApiError::field("prompt", "`prompt` is missing"))?;
    known(prompt_of(value, ready)?, ready)
}

/// Checks that the model can be given these tokens as a prompt.
fn known(tokens: Vec<i32>, ready: &Ready) -> Result<Prompt, ApiError> {
    Prompt::new(tokens, &ready.facts).map_err(|refused| {
        let small = matches!(refused, Refused::TooLong { .. });
        ApiError::from(refused).with(ready.advise(Reason::ContextTooSmall).filter(|_| small))
    })
}

fn prompt_of(value: Value, ready: &Ready) -> Result<Vec<i32>, ApiError> {
    match value {
        Value::String(text) => tokens_of(&text, true, ready),
        Value::Array(values) if values.first().is_some_and(Value::is_number) => tokens("prompt", &values),
        Value::Array(mut values) => match (values.pop(), values.is_empty()) {
            (Some(Value::Array(nested)), true) => tokens("prompt", &nested),
            (Some(Value::String(text)), true) => tokens_of(&text, true, ready),
            (None, _) => Err(ApiError::field("prompt", "`prompt` is an empty array")),
            (Some(_), true) => Err(ApiError::field("prompt", "`prompt` is neither text nor tokens")),
            (Some(_), false) => Err(ApiError::unsupported(
                "prompt",
                "a request takes one prompt; send several requests for several prompts",
            )),
        },
        other => Err(wrong("prompt", &other, "a string or an array of tokens")),
    }
}

/// Tokenises a text as the beginning of a document.
///
/// # Errors
/// The tokenizer fails, or the prompt is not valid for the model.
pub fn text_tokens(text: &str, ready: &Ready) -> Result<Prompt, ApiError> {
    known(tokens_of(text, true, ready)?, ready)
}

fn tokens_of(text: &str, add_special: bool, ready: &Ready) -> Result<Vec<i32>, ApiError> {
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

/// Renders the conversation of a request with the model's template.
///
/// # Errors
/// There is no conversation, or the template refuses it.
pub fn conversation(fields: &mut Fields, ready: &Ready) -> Result<String, ApiError> {
    let value =
        fields.take("messages").ok_or_else(|| ApiError::field("messages", "`messages` is missing"))?;
    let answers = fields.flag("add_generation_prompt")?.unwrap_or(true);
    render(&messages(value)?, answers, ready)
}

/// Renders a conversation with the model's template.
///
/// # Errors
/// The template refuses the conversation.
pub fn render(messages: &[Message], answers: bool, ready: &Ready) -> Result<String, ApiError> {
    Ok(ready.template()?.render(messages, answers)?)
}

/// Tokenises a rendered conversation.
///
/// # Errors
/// The tokenizer fails, or the prompt is not valid for the model.
pub fn chat_tokens(text: &str, ready: &Ready) -> Result<Prompt, ApiError> {
    known(tokens_of(text, !ready.facts.special_tokens.begin(text), ready)?, ready)
}

/// The turns of a conversation.
///
/// # Errors
/// A turn is not valid, or has unsupported content.
pub fn messages(value: Value) -> Result<Vec<Message>, ApiError> {
    let Value::Array(values) = value else { return Err(wrong("messages", &value, "an array")) };
    if values.is_empty() {
        return Err(ApiError::field("messages", "`messages` is empty"));
    }
    values
        .into_iter()
        .enumerate()
        .map(|(index, value)| message(&format!("messages[{index}]"), value))
        .collect()
}

fn message(path: &str, value: Value) -> Result<Message, ApiError> {
    let mut fields = Fields::within(path, value)?;
    let missing = |name| ApiError::field(format!("{path}.{name}"), format!("`{path}.{name}` is missing"));
    let role = match fields.text("role")?.ok_or_else(|| missing("role"))?.as_str() {
        // OpenAI's later name, which templates do not know.
        "developer" => "system",
        "system" => "system",
        "user" => "user",
        "assistant" => "assistant",
        other => {
            let message =
                format!("`{path}.role` is `{other}`, but must be system, developer, user or assistant");
            return Err(ApiError::unsupported(&format!("{path}.role"), message));
        }
    };
    let tools =
        fields.take("tool_calls").is_some_and(|calls| calls.as_array().is_none_or(|calls| !calls.is_empty()));
    if tools || fields.take("function_call").is_some() {
        return Err(ApiError::unsupported(&format!("{path}.tool_calls"), "tools are not supported"));
    }
    let place = fields.place("content");
    let content = match fields.take("content").ok_or_else(|| missing("content"))? {
        Value::String(text) => text,
        Value::Array(parts) => {
            parts.into_iter().map(|part| text_part(&place, part)).collect::<Result<_, _>>()?
        }
        other => return Err(wrong(&place, &other, "a string or an array of parts")),
    };
    // Other fields of a turn (a name, a refusal, thoughts) are not part of templates.
    Ok(Message::new(role, content))
}

fn text_part(place: &str, value: Value) -> Result<String, ApiError> {
    let mut part = Fields::within(place, value)?;
    match part.text("type")?.as_deref() {
        Some("text" | "input_text") => {}
        _ => return Err(ApiError::unsupported(place, format!("`{place}` has a part that is not text"))),
    }
    part.text("text")?
        .ok_or_else(|| ApiError::field(place, format!("`{place}` has a text part without text")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conversations_are_turns_of_text() {
        let turns = messages(json!([
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "me"},
            {"role": "assistant", "content": "", "tool_calls": []},
        ]));
        let expected = [("system", "be brief"), ("user", "ab"), ("assistant", "")];
        assert_eq!(turns.unwrap(), expected.map(|(role, content)| Message::new(role, content)));
    }

    #[test]
    fn what_is_no_turn_is_named() {
        for (value, part) in [
            (json!("hi"), "`messages` is a string, not an array"),
            (json!([]), "`messages` is empty"),
            (json!(["hi"]), "`messages[0]` is a string, not an object"),
            (json!([{"role": "user"}]), "`messages[0].content` is missing"),
            (json!([{"content": "x"}]), "`messages[0].role` is missing"),
            (json!([{"role": "user", "content": 5}]), "`messages[0].content` is a number"),
            (json!([{"role": "tool", "content": "5"}]), "`messages[0].role` is `tool`"),
            (json!([{"role": "user", "content": [{"type": "image_url"}]}]), "a part that is not text"),
            (json!([{"role": "assistant", "content": "x", "tool_calls": [{}]}]), "tools are not supported"),
        ] {
            let error = messages(value).unwrap_err();
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
