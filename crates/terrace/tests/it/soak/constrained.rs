//! Requests whose answers have a form, and whether they have it.

use crate::wire::post;
use serde_json::{Value, json};

/// A request, and what is checked of its answer.
pub struct Constrained {
    pub request: String,
    form: Form,
}

#[derive(Clone, Copy)]
enum Form {
    /// JSON by a schema.
    Schema,
    /// A call of a tool.
    Call,
    /// One of the grammar's texts.
    Grammar,
}

/// A place and a day, of which any answer is short.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 6}, "day": {"enum": [1, 2]}},
        "required": ["city", "day"],
        "additionalProperties": false,
    })
}

impl Constrained {
    /// A random one.
    pub fn new(prompt: &str, random: &mut fastrand::Rng) -> Self {
        let messages = json!([{"role": "user", "content": prompt}]);
        let temperature = random.f64() * 2.0;
        let chat = |more: Value| {
            let mut body = json!({"messages": messages, "max_tokens": 150, "temperature": temperature});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            post("/v1/chat/completions", &body)
        };
        match random.u8(0..3) {
            0 => {
                let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema()}});
                Self { request: chat(json!({"response_format": format})), form: Form::Schema }
            }
            1 => {
                let tool =
                    json!({"type": "function", "function": {"name": "weather", "parameters": schema()}});
                let more = json!({"tools": [tool], "tool_choice": "required"});
                Self { request: chat(more), form: Form::Call }
            }
            _ => {
                let body = json!({
                    "prompt": prompt,
                    "temperature": temperature,
                    "n_predict": 20,
                    "grammar": "root ::= \" yes\" | \" no\"",
                });
                Self { request: post("/completion", &body), form: Form::Grammar }
            }
        }
    }

    /// Whether the answer was complete; an error if it does not have the form.
    pub fn check(&self, answer: &Value) -> Result<bool, String> {
        let choice = &answer["choices"][0];
        if choice["finish_reason"] == "length" {
            return Ok(false);
        }
        let valid = match self.form {
            Form::Schema => choice["message"]["content"].as_str().is_some_and(follows),
            Form::Call => {
                let call = &choice["message"]["tool_calls"][0]["function"];
                call["name"] == "weather" && call["arguments"].as_str().is_some_and(follows)
            }
            Form::Grammar => [json!(" yes"), json!(" no")].contains(&answer["content"]),
        };
        if valid { Ok(true) } else { Err(format!("not of the form that was asked for: {answer}")) }
    }
}

/// Whether the text is JSON by the schema.
fn follows(text: &str) -> bool {
    let Ok(Value::Object(object)) = serde_json::from_str(text) else { return false };
    object.len() == 2
        && object.get("city").and_then(Value::as_str).is_some_and(|city| city.chars().count() <= 6)
        && object.get("day").is_some_and(|day| *day == 1 || *day == 2)
}
