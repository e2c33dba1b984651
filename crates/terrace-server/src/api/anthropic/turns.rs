//! Anthropic's turns and tools, as templates take them.

use crate::error::ApiError;
use crate::request::body::{Fields, wrong};
use crate::request::pictures::Pictures;
use crate::request::turns as common;
use serde_json::{Value, json};

/// The text of `system`: a text, or blocks of text.
///
/// # Errors
/// It is something else.
pub fn system(value: Value) -> Result<String, ApiError> {
    text_of("system", value)
}

/// The turns of a conversation, after the system's.
///
/// # Errors
/// A turn is not valid, or has content that is neither text nor an image.
pub fn turns(system: Option<String>, messages: Value) -> Result<common::Turns, ApiError> {
    let Value::Array(messages) = messages else { return Err(wrong("messages", &messages, "an array")) };
    if messages.is_empty() {
        return Err(ApiError::field("messages", "`messages` is empty"));
    }
    let system = system.filter(|text| !text.is_empty());
    let mut all: Vec<Value> =
        system.into_iter().map(|text| json!({"role": "system", "content": text})).collect();
    let mut pictures = Pictures::default();
    for (index, message) in messages.into_iter().enumerate() {
        turn(&format!("messages[{index}]"), message, &mut all, &mut pictures)?;
    }
    common::turns_with(all.into(), pictures)
}

fn turn(path: &str, value: Value, all: &mut Vec<Value>, pictures: &mut Pictures) -> Result<(), ApiError> {
    let mut fields = Fields::within(path, value)?;
    let role = fields.text("role")?.unwrap_or_default();
    let place = fields.place("content");
    let content = fields.required("content")?;
    let Value::Array(blocks) = content else {
        all.push(json!({"role": role, "content": text_of(&place, content)?}));
        return Ok(());
    };
    let (mut text, mut thoughts, mut calls) = (String::new(), String::new(), Vec::new());
    for (index, block) in blocks.into_iter().enumerate() {
        let path = format!("{place}[{index}]");
        let mut block = Fields::within(&path, block)?;
        let kind = block.text("type")?.unwrap_or_default();
        match kind.as_str() {
            "text" => text += &block.text("text")?.unwrap_or_default(),
            "image" => text += &image(&path, &mut block, pictures)?,
            "thinking" => thoughts += &block.text("thinking")?.unwrap_or_default(),
            "redacted_thinking" => {}
            "tool_use" => {
                let arguments = block.take("input").unwrap_or_else(|| json!({}));
                let function = json!({"name": block.text("name")?, "arguments": arguments});
                calls.push(json!({"id": block.text("id")?, "type": "function", "function": function}));
            }
            "tool_result" => {
                let place = block.place("content");
                let result =
                    block.take("content").map_or(Ok(String::new()), |value| text_of(&place, value))?;
                let id = block.text("tool_use_id")?.unwrap_or_default();
                all.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
            }
            other => {
                let message = format!(
                    "`{path}` is `{other}`: this server reads texts, images and results of tools only"
                );
                return Err(ApiError::unsupported(&path, message));
            }
        }
    }
    if text.is_empty() && calls.is_empty() && thoughts.is_empty() {
        return Ok(());
    }
    let mut turn = json!({"role": role, "content": text});
    if !calls.is_empty() {
        turn["tool_calls"] = calls.into();
    }
    if !thoughts.is_empty() {
        turn["reasoning_content"] = thoughts.into();
    }
    all.push(turn);
    Ok(())
}

/// The mark of a block's image.
fn image(path: &str, block: &mut Fields, pictures: &mut Pictures) -> Result<String, ApiError> {
    let place = format!("{path}.source");
    let mut source = Fields::within(&place, block.required("source")?)?;
    match source.text("type")?.as_deref() {
        Some("base64") => pictures.base64(&format!("{place}.data"), &source.required_text("data")?),
        Some("url") => pictures.url(&format!("{place}.url"), &source.required_text("url")?),
        other => {
            let message = format!("`{place}` is `{}`, but must be base64", other.unwrap_or_default());
            Err(ApiError::unsupported(&place, message))
        }
    }
}

/// A text, or blocks of text.
fn text_of(place: &str, value: Value) -> Result<String, ApiError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Array(blocks) => blocks
            .into_iter()
            .map(|block| {
                let mut block = Fields::within(place, block)?;
                match block.text("type")?.as_deref() {
                    Some("text") => Ok(block.text("text")?.unwrap_or_default()),
                    _ => {
                        let message = format!("`{place}` has a block that is not text");
                        Err(ApiError::unsupported(place, message))
                    }
                }
            })
            .collect(),
        other => Err(wrong(place, &other, "a text, or an array of blocks")),
    }
}

/// The tools that a model may call. Tools of Anthropic's services, which have a type, are left out.
///
/// # Errors
/// A tool has no name or no schema.
pub fn tools(value: Value) -> Result<Vec<Value>, ApiError> {
    let Value::Array(values) = value else { return Err(wrong("tools", &value, "an array")) };
    let own = values
        .into_iter()
        .filter(|tool| tool.get("type").and_then(Value::as_str).is_none_or(|kind| kind == "custom"));
    let tool = |(index, value)| {
        let mut tool = Fields::within(&format!("tools[{index}]"), value)?;
        let function = json!({
            "name": tool.take("name"),
            "description": tool.take("description"),
            "parameters": tool.take("input_schema"),
        });
        Ok(json!({"type": "function", "function": function}))
    };
    common::tools(own.enumerate().map(tool).collect::<Result<Vec<_>, ApiError>>()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_turns() {
        let got = turns(
            Some("be brief".into()),
            json!([
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "Let me see."},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"x": 1}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "5"}]},
                    {"type": "text", "text": "And now?"},
                ]},
            ]),
        );
        let call =
            json!({"type": "function", "id": "t1", "function": {"name": "f", "arguments": "{\"x\":1}"}});
        let expected = json!([
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Let me see.", "tool_calls": [call], "reasoning_content": "hm"},
            {"role": "tool", "content": "5", "tool_call_id": "t1"},
            {"role": "user", "content": "And now?"},
        ]);
        assert_eq!(Value::Array(got.unwrap().messages), expected);
    }

    #[test]
    fn what_is_no_turn_or_tool_is_named() {
        for (value, part) in [
            (json!([]), "`messages` is empty"),
            (json!([{"role": "user"}]), "`messages[0].content` is missing"),
            (
                json!([{"role": "user", "content": [{"type": "document"}]}]),
                "`messages[0].content[0]` is `document`",
            ),
            (
                json!([{"role": "user", "content": [{"type": "image"}]}]),
                "`messages[0].content[0].source` is missing",
            ),
            (
                json!([{"role": "user", "content": [{"type": "image", "source": {"type": "file"}}]}]),
                "`messages[0].content[0].source` is `file`",
            ),
            (json!([{"role": "judge", "content": "x"}]), "`messages[0].role` is `judge`"),
        ] {
            let error = turns(None, value).unwrap_err();
            assert!(error.message().contains(part), "{}", error.message());
        }
        assert!(tools(json!([{"input_schema": {}}])).unwrap_err().message().contains("name` is missing"));
        let kept =
            tools(json!([{"type": "web_search_20250305", "name": "w"}, {"name": "f", "input_schema": {}}]));
        assert_eq!(kept.unwrap().len(), 1);
    }
}
