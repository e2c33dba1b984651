//! JSON schemas of clients, in the form that llama.cpp makes grammars of.
//!
//! llama.cpp's converter knows a part of JSON Schema, and leaves out the rest without a word. Here a schema is
//! rewritten into that part as far as it goes - each text of the result's grammar is valid by the schema - and
//! the keywords that then still do not hold are named, by their paths in the schema.

mod all_of;
mod disjoint;
mod keywords;
mod kinds;
mod pattern;
mod walk;

use crate::chat::ChatTemplateError;
pub use pattern::{pattern_grammar, quoted};
use serde_json::{Value, json};
use walk::{Walk, Walked};

/// A client's JSON schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// As llama.cpp's converter takes it.
    pub text: String,
    /// The keywords that answers need not follow, as paths: `#/properties/n/minimum`.
    pub unenforced: Vec<String>,
    /// True if the converter would refuse the schema as it was given, or read it in another way.
    pub changed: bool,
}

impl Schema {
    /// Reads a schema: an object or a boolean.
    ///
    /// # Errors
    /// [`ChatTemplateError::Schema`]: it is neither, refers to what is not there, or allows nothing.
    pub fn of(schema: &Value) -> Result<Self, ChatTemplateError> {
        let Walked { value, unenforced, mut changed } =
            Walk::root(schema).map_err(ChatTemplateError::Schema)?;
        // What says nothing would be taken for no schema.
        let says_nothing = value.as_object().is_some_and(serde_json::Map::is_empty);
        changed |= says_nothing;
        let value = if says_nothing { any_value() } else { value };
        Ok(Self { text: value.to_string(), unenforced, changed })
    }

    /// Reads the text of a schema.
    ///
    /// # Errors
    /// As [`Schema::of`]; or it is not JSON.
    pub fn parse(text: &str) -> Result<Self, ChatTemplateError> {
        let value =
            serde_json::from_str(text).map_err(|error| ChatTemplateError::Schema(error.to_string()))?;
        Self::of(&value)
    }
}

/// The schema of any value.
fn any_value() -> Value {
    let types = ["object", "array", "string", "number", "boolean", "null"];
    json!({"anyOf": types.map(|ty| json!({"type": ty}))})
}

#[cfg(test)]
mod tests;
