//! Fields that say what an answer may be: a grammar, or a JSON schema.

use super::body::{Fields, wrong};
use crate::app::Ready;
use crate::error::ApiError;
use serde_json::{Value, json};
use terrace_ggml::llama::{Grammar, Purpose};

/// Constraint of responses.
#[derive(Debug, Default)]
pub struct Constraint {
    /// A grammar in llama.cpp's form; empty: none.
    pub grammar: String,
    /// A JSON schema as text; empty: none.
    pub schema: String,
}

impl Constraint {
    /// Reads llama-server's `grammar` and `json_schema`, and OpenAI's `response_format`.
    ///
    /// # Errors
    /// A field is not valid, or there are two of them.
    pub fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let grammar = fields.text("grammar")?.unwrap_or_default();
        let schema =
            fields.take("json_schema").map(|schema| schema_text("json_schema", schema)).transpose()?;
        let format = match fields.take("response_format") {
            Some(format) => schema_of(Fields::within("response_format", format)?)?,
            None => None,
        };
        let given = [!grammar.is_empty(), schema.is_some(), format.is_some()];
        if given.into_iter().filter(|&given| given).count() > 1 {
            return Err(ApiError::request(
                "a request takes one of `grammar`, `json_schema` and `response_format`",
            ));
        }
        Ok(Self { grammar, schema: schema.or(format).unwrap_or_default() })
    }

    /// The grammar for an answer that is not a turn of a conversation.
    ///
    /// # Errors
    /// The schema or the grammar is not valid.
    pub fn grammar(self, ready: &Ready) -> Result<Option<Grammar>, ApiError> {
        let (text, purpose) = match (self.grammar, self.schema) {
            (grammar, schema) if grammar.is_empty() && schema.is_empty() => return Ok(None),
            (grammar, schema) if schema.is_empty() => {
                ready.grammars.check(&grammar)?;
                (grammar, Purpose::User)
            }
            (_, schema) => (ready.grammars.of_schema(&schema)?, Purpose::Format),
        };
        Ok(Some(Grammar { text, purpose, ..Grammar::default() }))
    }
}

/// The schema of OpenAI's `response_format`.
fn schema_of(mut format: Fields) -> Result<Option<String>, ApiError> {
    let kind = format.text("type")?.unwrap_or_default();
    let schema = match kind.as_str() {
        "text" => None,
        // llama.cpp's server takes a schema here as well.
        "json_object" => Some(format.take("schema").unwrap_or_else(|| json!({"type": "object"}))),
        "json_schema" => {
            let inner = format.required("json_schema")?;
            let mut inner = Fields::within("response_format.json_schema", inner)?;
            let schema = inner.required("schema")?;
            // Answers always follow it exactly.
            for ignored in ["name", "description", "strict"] {
                inner.take(ignored);
            }
            inner.finish()?;
            Some(schema)
        }
        other => {
            let message =
                format!("`response_format.type` is `{other}`, but must be text, json_object or json_schema");
            return Err(ApiError::unsupported("response_format.type", message));
        }
    };
    format.finish()?;
    schema.map(|schema| schema_text("response_format", schema)).transpose()
}

/// A schema as text: an object, or true.
///
/// # Errors
/// It is something else.
pub fn schema_text(place: &str, schema: Value) -> Result<String, ApiError> {
    match schema {
        Value::Object(_) | Value::Bool(true) => Ok(schema.to_string()),
        // Some clients send the text.
        Value::String(text) if serde_json::from_str::<Value>(&text).is_ok_and(|value| value.is_object()) => {
            Ok(text)
        }
        other => Err(wrong(place, &other, "a JSON schema")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &Value) -> Result<Constraint, ApiError> {
        Constraint::read(&mut Fields::parse(body.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn schemas_come_in_three_ways() {
        let schema = json!({"type": "object"});
        for body in [
            json!({"json_schema": schema}),
            json!({"response_format": {"type": "json_object"}}),
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": true, "schema": schema}}}),
        ] {
            assert_eq!(read(&body).unwrap().schema, schema.to_string(), "{body}");
        }
        let none = read(&json!({"response_format": {"type": "text"}, "grammar": ""})).unwrap();
        assert!(none.schema.is_empty() && none.grammar.is_empty());
    }

    #[test]
    fn what_is_no_constraint_is_named() {
        for (body, part) in [
            (json!({"response_format": {"type": "xml"}}), "`response_format.type` is `xml`"),
            (json!({"response_format": {"type": "json_schema"}}), "`response_format.json_schema` is missing"),
            (json!({"json_schema": 5}), "`json_schema` is a number, not a JSON schema"),
            (json!({"grammar": "root ::= \"a\"", "json_schema": {}}), "takes one of"),
        ] {
            let error = read(&body).unwrap_err();
            assert!(error.message().contains(part), "{}", error.message());
        }
    }
}
