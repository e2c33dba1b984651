//! Fields that say what an answer may be: a grammar, or a JSON schema.

use super::body::{Fields, wrong};
use crate::app::Ready;
use crate::error::ApiError;
use crate::exchange::Exchange;
use serde_json::{Value, json};
use terrace_engine::{Schema, pattern_grammar, quoted};
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
    /// Reads llama-server's `grammar` and `json_schema`, OpenAI's `response_format`, and what vLLM and SGLang
    /// have for the same.
    ///
    /// # Errors
    /// A field is not valid, or there are two of them.
    pub fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let mut all = Vec::new();
        if let Some(format) = fields.take("response_format")
            && let Some(schema) = schema_of(Fields::within("response_format", format)?)?
        {
            all.push(Self { schema, ..Self::default() });
        }
        // SGLang's names, the older ones of vLLM, and its present ones.
        let mut own = Names {
            grammar: &["grammar", "ebnf", "guided_grammar"],
            schema: &["json_schema", "guided_json"],
            regex: &["regex", "guided_regex"],
            choice: &["guided_choice"],
            object: &["guided_json_object"],
        };
        own.read(fields, &mut all)?;
        for ignored in ["guided_decoding_backend", "guided_whitespace_pattern"] {
            fields.take(ignored);
        }
        let place = fields.place("structured_outputs");
        if let Some(outputs) = fields.take("structured_outputs") {
            let mut outputs = Fields::within(&place, outputs)?;
            own = Names {
                grammar: &["grammar"],
                schema: &["json"],
                regex: &["regex"],
                choice: &["choice"],
                object: &["json_object"],
            };
            own.read(&mut outputs, &mut all)?;
            for ignored in OF_BACKENDS {
                outputs.take(ignored);
            }
            outputs.finish()?;
        }
        if all.len() > 1 {
            return Err(ApiError::request(
                "a request takes one of `grammar`, `json_schema`, `response_format` and what vLLM and SGLang \
                 have for the same",
            ));
        }
        Ok(all.pop().unwrap_or_default())
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

/// Settings of vLLM's grammar backends.
const OF_BACKENDS: [&str; 5] = [
    "disable_additional_properties",
    "disable_any_whitespace",
    "disable_fallback",
    "whitespace_pattern",
    "backend",
];

/// Names of fields that constrain an answer.
struct Names {
    grammar: &'static [&'static str],
    schema: &'static [&'static str],
    regex: &'static [&'static str],
    choice: &'static [&'static str],
    /// True: any object of JSON.
    object: &'static [&'static str],
}

impl Names {
    fn read(&self, fields: &mut Fields, all: &mut Vec<Constraint>) -> Result<(), ApiError> {
        let of_grammar = |grammar: String| Constraint { grammar, ..Constraint::default() };
        let of_schema = |schema: String| Constraint { schema, ..Constraint::default() };
        for name in self.grammar {
            all.extend(fields.text(name)?.filter(|grammar| !grammar.is_empty()).map(of_grammar));
        }
        for name in self.schema {
            if let Some(schema) = fields.take(name) {
                all.push(of_schema(schema_text(&fields.place(name), schema)?));
            }
        }
        for name in self.regex {
            if let Some(pattern) = fields.text(name)? {
                let place = fields.place(name);
                let grammar = pattern_grammar(&pattern).ok_or_else(|| {
                    let message = format!("`{place}` is not a pattern that answers can follow");
                    ApiError::field(&place, message)
                })?;
                all.push(of_grammar(grammar));
            }
        }
        for name in self.choice {
            if let Some(choices) = fields.take(name) {
                all.push(of_grammar(choice(&fields.place(name), &choices)?));
            }
        }
        for name in self.object {
            all.extend(
                fields.flag(name)?.filter(|&any| any).map(|_| of_schema(r#"{"type":"object"}"#.into())),
            );
        }
        Ok(())
    }
}

/// The grammar of one of several texts.
fn choice(place: &str, choices: &Value) -> Result<String, ApiError> {
    let texts = choices.as_array().filter(|all| !all.is_empty()).and_then(|all| {
        all.iter().map(|one| one.as_str().filter(|text| !text.is_empty())).collect::<Option<Vec<_>>>()
    });
    let texts = texts.ok_or_else(|| wrong(place, choices, "an array of texts"))?;
    Ok(format!("root ::= {}", texts.into_iter().map(quoted).collect::<Vec<_>>().join(" | ")))
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
/// It is something else; or the server is strict, and answers would not follow all of it.
pub fn schema_text(place: &str, schema: Value) -> Result<String, ApiError> {
    let schema = match schema {
        Value::Object(_) | Value::Bool(true) => schema,
        // Some clients send the text.
        Value::String(text) => match serde_json::from_str::<Value>(&text) {
            Ok(value) if value.is_object() => value,
            _ => return Err(wrong(place, &Value::String(text), "a JSON schema")),
        },
        other => return Err(wrong(place, &other, "a JSON schema")),
    };
    Ok(followable(place, &schema, true)?.text)
}

/// A schema as far as answers follow it. What they do not follow is noted; or it is an error, if the server is
/// strict and the client counts on it.
///
/// # Errors
/// It is no schema; or the server is strict.
pub fn followable(place: &str, schema: &Value, counts: bool) -> Result<Schema, ApiError> {
    let read = Schema::of(schema).map_err(|error| ApiError::field(place, error.to_string()))?;
    if let Some(exchange) = Exchange::here().filter(|_| !read.unenforced.is_empty()) {
        if counts && exchange.strict {
            let message = format!(
                "answers would not follow these keywords of the schema `{place}`: {}",
                read.unenforced.join(", ")
            );
            return Err(ApiError::unsupported(place, message));
        }
        read.unenforced.iter().for_each(|path| exchange.unenforced(&format!("{place}{path}")));
    }
    Ok(read)
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
    fn vllms_and_sglangs_names_mean_the_same() {
        let schema = json!({"type": "object"});
        for body in [
            json!({"guided_json": schema, "guided_decoding_backend": "xgrammar"}),
            json!({"guided_json_object": true}),
            json!({"structured_outputs": {"json": schema, "disable_any_whitespace": true}}),
            json!({"structured_outputs": {"json_object": true}}),
            json!({"json_schema": schema.to_string()}),
        ] {
            assert_eq!(read(&body).unwrap().schema, schema.to_string(), "{body}");
        }
        for (body, expected) in [
            (json!({"regex": "a+"}), r#"root ::= ("a")+"#),
            (json!({"guided_regex": "^[0-9]$"}), "root ::= [0-9]"),
            (json!({"structured_outputs": {"regex": "ab"}}), r#"root ::= "ab""#),
            (json!({"ebnf": "root ::= \"x\""}), r#"root ::= "x""#),
            (json!({"guided_choice": ["yes", "n\"o"]}), r#"root ::= "yes" | "n\"o""#),
            (json!({"structured_outputs": {"choice": ["a"]}}), r#"root ::= "a""#),
        ] {
            assert_eq!(read(&body).unwrap().grammar, expected, "{body}");
        }
    }

    #[test]
    fn what_is_no_constraint_is_named() {
        for (body, part) in [
            (json!({"response_format": {"type": "xml"}}), "`response_format.type` is `xml`"),
            (json!({"response_format": {"type": "json_schema"}}), "`response_format.json_schema` is missing"),
            (json!({"json_schema": 5}), "`json_schema` is a number, not a JSON schema"),
            (json!({"grammar": "root ::= \"a\"", "json_schema": {}}), "takes one of"),
            (json!({"regex": "(?=a)"}), "`regex` is not a pattern"),
            (json!({"guided_choice": [5]}), "`guided_choice` is an array, not an array of texts"),
            (json!({"structured_outputs": {"regex": "["}}), "`structured_outputs.regex` is not"),
        ] {
            let error = read(&body).unwrap_err();
            assert!(error.message().contains(part), "{}", error.message());
        }
    }
}
