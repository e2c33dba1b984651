//! The items of OpenAI's responses, as turns of a conversation.

use super::tools::{custom_arguments, shown_name};
use crate::error::ApiError;
use crate::request::body::{Fields, wrong};
use crate::request::pictures::Pictures;
use crate::request::turns as common;
use serde_json::{Value, json};

/// The beginning of [`thoughts_given_back`].
const KEPT_THOUGHTS: &str = "terrace:";
/// Between texts that become one turn.
const BREAK: &str = "\n\n";

/// Thoughts in the form in which clients that keep conversations themselves give them back. Nothing
/// is encrypted: the server has no secret of its own, and clients see the thoughts anyway.
pub fn thoughts_given_back(thoughts: &str) -> String {
    format!("{KEPT_THOUGHTS}{thoughts}")
}

/// The turns of a conversation: the instructions, and the items of `input`, which may be a text.
///
/// # Errors
/// There is no item, or one is not valid, or neither text nor an image.
pub fn turns(instructions: Option<String>, input: Value) -> Result<common::Turns, ApiError> {
    let mut turns = Turns::default();
    if let Some(text) = instructions.filter(|text| !text.is_empty()) {
        turns.message("system", text);
    }
    match input {
        Value::String(text) => turns.message("user", text),
        Value::Array(items) if items.is_empty() => {
            return Err(ApiError::field("input", "`input` is empty"));
        }
        Value::Array(items) => {
            for (index, item) in items.into_iter().enumerate() {
                turns.item(&format!("input[{index}]"), item)?;
            }
        }
        other => return Err(wrong("input", &other, "a string or an array of items")),
    }
    if turns.all.is_empty() {
        return Err(ApiError::field("input", "`input` has no item that the model can read"));
    }
    common::turns_with(turns.all.into(), turns.pictures)
}

/// Turns, as they are put together.
#[derive(Default)]
struct Turns {
    all: Vec<Value>,
    pictures: Pictures,
}

impl Turns {
    fn item(&mut self, path: &str, value: Value) -> Result<(), ApiError> {
        let mut item = Fields::within(path, value)?;
        let kind = item.text("type")?;
        match kind.as_deref() {
            None | Some("message") => {
                let role = item.required_text("role")?;
                let text = text(&mut item, "content", &mut self.pictures)?;
                self.message(&role, text);
            }
            Some("reasoning") => self.thoughts(&thoughts(&mut item)?),
            Some("function_call") => {
                let name = item.required_text("name")?;
                let name = shown_name(item.text("namespace")?.as_deref(), &name);
                let arguments = item.required_text("arguments")?;
                self.call(&mut item, &name, arguments)?;
            }
            Some("custom_tool_call") => {
                let name = item.required_text("name")?;
                let name = shown_name(item.text("namespace")?.as_deref(), &name);
                let arguments = custom_arguments(&item.required_text("input")?);
                self.call(&mut item, &name, arguments)?;
            }
            Some("function_call_output" | "custom_tool_call_output") => {
                let id = item.required_text("call_id")?;
                let result = text(&mut item, "output", &mut self.pictures)?;
                self.all.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
            }
            Some("item_reference") => {
                let message = format!(
                    "`{path}` refers to an item of an earlier response, but this server keeps none: send the \
                     item itself"
                );
                return Err(ApiError::unsupported(path, message));
            }
            Some(other) => {
                let message = format!(
                    "`{path}` is `{other}`: this server reads messages, reasoning, and calls of functions and \
                     custom tools with their outputs"
                );
                return Err(ApiError::unsupported(path, message));
            }
        }
        Ok(())
    }

    /// Adds a message. Instructions before the conversation become one turn, as templates have one
    /// place for them; what an assistant wrote between two questions is one turn as well.
    fn message(&mut self, role: &str, text: String) {
        let is_system = |role: &str| role == "system" || role == "developer";
        let last = self.all.last().and_then(|turn| turn["role"].as_str());
        let joined = match last {
            Some(last) if is_system(role) => is_system(last) && self.all.len() == 1,
            Some(last) => role == "assistant" && last == "assistant",
            None => false,
        };
        match self.all.last_mut() {
            Some(turn) if joined => {
                let before = turn["content"].as_str().unwrap_or_default();
                let between = if before.is_empty() || text.is_empty() { "" } else { BREAK };
                turn["content"] = format!("{before}{between}{text}").into();
            }
            _ => self.all.push(json!({"role": role, "content": text})),
        }
    }

    /// Adds thoughts, which come before what the assistant says.
    fn thoughts(&mut self, thoughts: &str) {
        if thoughts.is_empty() {
            return;
        }
        let has_said = |turn: &Value| turn["content"] != "" || turn["tool_calls"].is_array();
        if self.all.last().is_some_and(|turn| turn["role"] == "assistant" && has_said(turn)) {
            self.all.push(json!({"role": "assistant", "content": ""}));
        }
        let turn = self.assistant();
        let before = turn["reasoning_content"].as_str().unwrap_or_default();
        turn["reasoning_content"] = format!("{before}{thoughts}").into();
    }

    fn call(&mut self, item: &mut Fields, name: &str, arguments: String) -> Result<(), ApiError> {
        let id = item.required_text("call_id")?;
        let call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        let turn = self.assistant();
        match turn["tool_calls"].as_array_mut() {
            Some(calls) => calls.push(call),
            None => turn["tool_calls"] = json!([call]),
        }
        Ok(())
    }

    /// The assistant's turn, if it is the last one, or a new one.
    fn assistant(&mut self) -> &mut Value {
        if self.all.last().is_none_or(|turn| turn["role"] != "assistant") {
            self.all.push(json!({"role": "assistant", "content": ""}));
        }
        self.all.last_mut().expect("there is one")
    }
}

/// A text, or parts that are texts and images.
fn text(item: &mut Fields, name: &'static str, pictures: &mut Pictures) -> Result<String, ApiError> {
    let place = item.place(name);
    match item.required(name)? {
        Value::String(text) => Ok(text),
        Value::Array(parts) => parts.into_iter().map(|part| common::part(&place, part, pictures)).collect(),
        other => Err(wrong(&place, &other, "a string or an array of parts")),
    }
}

/// The thoughts of a reasoning item: its own text, or what this server gave as its encrypted
/// content. Other servers' encrypted content, and summaries, are not the model's thoughts.
fn thoughts(item: &mut Fields) -> Result<String, ApiError> {
    let place = item.place("content");
    let mut thoughts = String::new();
    match item.take("content") {
        None => {}
        Some(Value::Array(parts)) => {
            for part in parts {
                thoughts += &Fields::within(&place, part)?.text("text")?.unwrap_or_default();
            }
        }
        Some(other) => return Err(wrong(&place, &other, "an array of parts")),
    }
    let kept = item.text("encrypted_content")?.unwrap_or_default();
    match kept.strip_prefix(KEPT_THOUGHTS) {
        Some(kept) if thoughts.is_empty() => Ok(kept.into()),
        _ => Ok(thoughts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_become_turns() {
        let got = turns(
            Some("be brief".into()),
            json!([
                {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "in verse"}]},
                {"role": "user", "content": "Hi"},
                {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
                {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                 "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}]},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"x\":1}"},
                {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "a\"b"},
                {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "5"}]},
                {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
                {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "terrace:well"},
                {"type": "reasoning", "id": "rs_3", "summary": [], "encrypted_content": "gAAAA"},
                {"type": "function_call", "call_id": "c3", "namespace": "web", "name": "open", "arguments": "{}"},
                {"type": "message", "role": "developer", "content": "now stop"},
            ]),
        );
        let call = |id: &str, name: &str, arguments: &str| json!({"type": "function", "id": id, "function": {"name": name, "arguments": arguments}});
        let expected = json!([
            {"role": "system", "content": "be brief\n\nin verse"},
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant", "content": "Let me see.", "reasoning_content": "hm",
                "tool_calls": [call("c1", "f", "{\"x\":1}"), call("c2", "patch", "{\"input\":\"a\\\"b\"}")],
            },
            {"role": "tool", "content": "5", "tool_call_id": "c1"},
            {"role": "tool", "content": "done", "tool_call_id": "c2"},
            {
                "role": "assistant", "content": "", "reasoning_content": "well",
                "tool_calls": [call("c3", "web__open", "{}")],
            },
            {"role": "developer", "content": "now stop"},
        ]);
        assert_eq!(Value::Array(got.unwrap().messages), expected);
        let text = turns(None, "Hi".into()).unwrap().messages;
        assert_eq!(text, [json!({"role": "user", "content": "Hi"})]);
    }

    #[test]
    fn answers_in_a_row_are_one_turn_up_to_new_thoughts() {
        let message = |text: &str| json!({"type": "message", "role": "assistant", "content": text});
        let thought = |text: &str| json!({"type": "reasoning", "summary": [], "content": [{"text": text}]});
        let items = json!([thought("a"), message("b"), message("c"), thought("d"), message("e")]);
        let expected = json!([
            {"role": "assistant", "content": "b\n\nc", "reasoning_content": "a"},
            {"role": "assistant", "content": "e", "reasoning_content": "d"},
        ]);
        assert_eq!(Value::Array(turns(None, items).unwrap().messages), expected);
    }

    #[test]
    fn what_is_no_item_is_named() {
        for (value, part) in [
            (json!(5), "`input` is a number, not a string or an array of items"),
            (json!([]), "`input` is empty"),
            (json!([{"type": "reasoning", "summary": []}]), "no item that the model can read"),
            (json!(["x"]), "`input[0]` is a string"),
            (json!([{"content": "x"}]), "`input[0].role` is missing"),
            (json!([{"role": "user"}]), "`input[0].content` is missing"),
            (json!([{"role": "user", "content": [{"type": "input_image"}]}]), "image_url` is missing"),
            (json!([{"role": "user", "content": [{"type": "input_file"}]}]), "neither text nor an image"),
            (json!([{"role": "judge", "content": "x"}]), "is `judge`"),
            (
                json!([{"type": "function_call", "name": "f", "arguments": "{}"}]),
                "`input[0].call_id` is missing",
            ),
            (json!([{"type": "item_reference", "id": "msg_1"}]), "this server keeps none"),
            (json!([{"type": "web_search_call"}]), "`input[0]` is `web_search_call`"),
        ] {
            let error = turns(None, value).unwrap_err();
            assert!(error.message().contains(part), "{}", error.message());
        }
    }
}
