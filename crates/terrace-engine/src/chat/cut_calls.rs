//! Calls in a conversation whose arguments are not an object of JSON: the token limit cut the model off, and the
//! client sends back what it got. Templates get such arguments as the text that they are.

use super::conversation::Conversation;
use serde_json::{Value, json};

/// Ways to give a template a text in place of an object, of which the first one is used that it takes.
pub(super) fn ways(takes_objects: bool) -> [fn(&str) -> String; 2] {
    // What a template takes as objects, llama.cpp parses first: of this the text is left.
    let encoded: fn(&str) -> String = |text| Value::from(text).to_string();
    let as_it_is: fn(&str) -> String = str::to_owned;
    // For templates that walk through the arguments.
    let within: fn(&str) -> String = |text| json!({"arguments": text}).to_string();
    [if takes_objects { encoded } else { as_it_is }, within]
}

/// The conversation with such arguments written in one of the [`ways`]. `None`: it has none.
pub(super) fn rewritten(conversation: &Conversation, way: fn(&str) -> String) -> Option<Conversation> {
    let mut conversation = conversation.clone();
    let mut any = false;
    let calls =
        conversation.messages.iter_mut().filter_map(|turn| turn.get_mut("tool_calls")?.as_array_mut());
    for call in calls.flatten() {
        let Some(arguments) = call.pointer_mut("/function/arguments") else { continue };
        if let Some(text) = arguments.as_str().filter(|text| !is_object(text)) {
            (*arguments, any) = (way(text).into(), true);
        }
    }
    any.then_some(conversation)
}

fn is_object(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|value| value.is_object())
}
