//! One item of a response while it grows, with its events.

use super::tools::{Named, Names, custom_input};
use super::turns::thoughts_given_back;
use crate::response::random_id;
use serde_json::{Value, json};

/// A kind of item; calls have the number of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Thoughts,
    Text,
    Call(usize),
}

/// An item that is not complete.
pub struct Item {
    pub kind: Kind,
    id: String,
    /// The text, the thoughts, or the arguments of a call.
    text: String,
    /// Probabilities of the text's tokens.
    probs: Vec<Value>,
    call_id: String,
    tool: Named,
}

/// An event's name and its fields, without its numbers.
pub type Event = (&'static str, Value);

impl Item {
    fn new(kind: Kind, prefix: &str) -> Self {
        let (text, probs) = (String::new(), Vec::new());
        Self { kind, id: random_id(prefix), text, probs, call_id: String::new(), tool: Named::default() }
    }

    /// A message that is empty so far.
    pub fn text() -> Self {
        Self::new(Kind::Text, "msg_")
    }

    /// Thoughts that are empty so far.
    pub fn thoughts() -> Self {
        Self::new(Kind::Thoughts, "rs_")
    }

    /// A call of a tool without arguments so far.
    pub fn call(index: usize, id: Option<String>, name: Option<String>, names: &Names) -> Self {
        let name = name.unwrap_or_default();
        let tool = names.get(&name).cloned().unwrap_or_else(|| Named { name, ..Named::default() });
        let prefix = if tool.is_custom { "ctc_" } else { "fc_" };
        Self { call_id: id.unwrap_or_default(), tool, ..Self::new(Kind::Call(index), prefix) }
    }

    /// The object in this state.
    fn object(&self, status: &str, content: Value) -> Value {
        let mut item = json!({"id": self.id, "status": status});
        match self.kind {
            Kind::Text => {
                item["type"] = "message".into();
                item["role"] = "assistant".into();
                item["content"] = content;
            }
            Kind::Thoughts => {
                item["type"] = "reasoning".into();
                item["summary"] = json!([]);
                item["content"] = content;
            }
            Kind::Call(_) => {
                let (kind, input) = self.call_names();
                item["type"] = kind.into();
                item["call_id"] = self.call_id.as_str().into();
                item["name"] = self.tool.name.as_str().into();
                if let Some(namespace) = &self.tool.namespace {
                    item["namespace"] = namespace.as_str().into();
                }
                item[input] = content;
            }
        }
        item
    }

    /// The names of a call's type and of its input.
    const fn call_names(&self) -> (&'static str, &'static str) {
        if self.tool.is_custom { ("custom_tool_call", "input") } else { ("function_call", "arguments") }
    }

    /// The one part of a message or of thoughts.
    fn part(&self) -> Value {
        match self.kind {
            Kind::Thoughts => json!({"type": "reasoning_text", "text": self.text}),
            _ => json!({
                "type": "output_text",
                "text": self.text,
                "annotations": [],
                "logprobs": self.probs,
            }),
        }
    }

    /// An event about the part.
    fn part_event(&self, name: &'static str, more: Value) -> Event {
        let mut data = json!({"item_id": self.id, "content_index": 0});
        if let (Some(data), Value::Object(more)) = (data.as_object_mut(), more) {
            data.extend(more);
        }
        (name, data)
    }

    /// The events of its beginning.
    pub fn added(&self) -> Vec<Event> {
        let content = if matches!(self.kind, Kind::Call(_)) { "".into() } else { json!([]) };
        let item = self.object("in_progress", content);
        let mut events = vec![("response.output_item.added", json!({"item": item}))];
        if !matches!(self.kind, Kind::Call(_)) {
            events.push(self.part_event("response.content_part.added", json!({"part": self.part()})));
        }
        events
    }

    /// Adds text. The input of a custom tool is told when it is complete.
    pub fn delta(&mut self, text: &str, probs: Vec<Value>) -> Option<Event> {
        self.text.push_str(text);
        match self.kind {
            Kind::Text => {
                let delta = json!({"delta": text, "logprobs": probs});
                self.probs.extend(probs);
                Some(self.part_event("response.output_text.delta", delta))
            }
            Kind::Thoughts => Some(self.part_event("response.reasoning_text.delta", json!({"delta": text}))),
            Kind::Call(_) if self.tool.is_custom || text.is_empty() => None,
            Kind::Call(_) => {
                let data = json!({"item_id": self.id, "delta": text});
                Some(("response.function_call_arguments.delta", data))
            }
        }
    }

    /// The events of its end, and the item.
    pub fn done(self, status: &str, gives_thoughts: bool) -> (Vec<Event>, Value) {
        let mut events = Vec::new();
        let item = match self.kind {
            Kind::Text | Kind::Thoughts => {
                let part = self.part();
                let mut item = self.object(status, json!([part]));
                if self.kind == Kind::Text {
                    let text = json!({"text": self.text, "logprobs": self.probs});
                    events.push(self.part_event("response.output_text.done", text));
                } else {
                    events.push(self.part_event("response.reasoning_text.done", json!({"text": self.text})));
                    if gives_thoughts {
                        item["encrypted_content"] = thoughts_given_back(&self.text).into();
                    }
                }
                events.push(self.part_event("response.content_part.done", json!({"part": part})));
                item
            }
            Kind::Call(_) if self.tool.is_custom => {
                let input = custom_input(&self.text);
                let delta = json!({"item_id": self.id, "delta": input});
                events.push(("response.custom_tool_call_input.delta", delta));
                let whole = json!({"item_id": self.id, "input": input});
                events.push(("response.custom_tool_call_input.done", whole));
                self.object(status, input.into())
            }
            Kind::Call(_) => {
                let whole = json!({"item_id": self.id, "name": self.tool.name, "arguments": self.text});
                events.push(("response.function_call_arguments.done", whole));
                self.object(status, self.text.as_str().into())
            }
        };
        events.push(("response.output_item.done", json!({"item": item})));
        (events, item)
    }
}
