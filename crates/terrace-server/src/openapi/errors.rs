//! The forms of errors, and the statuses that kinds of operations can fail with.

use super::fields::{Maybe, Nullable, Whole};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Errors of every operation that needs a key.
pub const KEYED: &[u16] = &[401, 403];
/// Errors of a server whose model is loading, and internal ones.
pub const SERVER: &[u16] = &[500, 503];
/// Errors of operations with a body, or with parameters that can be wrong.
pub const INVALID: &[u16] = &[400];
/// Errors of reading a body.
pub const BODY: &[u16] = &[408, 413];
/// A body that is not JSON.
pub const NOT_JSON: &[u16] = &[422];
/// Errors of requests that wait for a server slot.
pub const QUEUE: &[u16] = &[429, 504];
/// Errors of what the model or the server's settings do not provide.
pub const NOT_PROVIDED: &[u16] = &[501];
/// Errors of what is not found.
pub const NOT_FOUND: &[u16] = &[404];

/// The form of an error, which is that of the API.
#[derive(Clone, Copy)]
pub enum ErrorForm {
    OpenAi,
    Ollama,
    Anthropic,
    /// A reload that was refused.
    Refused,
}

impl ErrorForm {
    const ALL: [Self; 4] = [Self::OpenAi, Self::Ollama, Self::Anthropic, Self::Refused];

    const fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "Error",
            Self::Ollama => "OllamaError",
            Self::Anthropic => "AnthropicError",
            Self::Refused => "Refused",
        }
    }

    /// A reference to the response of this form.
    pub fn reference(self) -> Value {
        json!({"$ref": format!("#/components/responses/{}", self.name())})
    }
}

/// The responses that [`ErrorForm::reference`] names.
pub fn responses(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let describe = |form: ErrorForm| {
        let (description, schema) = match form {
            ErrorForm::OpenAi => ("Why the request failed.", generator.subschema_for::<Error>()),
            ErrorForm::Ollama => ("Why the request failed.", generator.subschema_for::<OllamaError>()),
            ErrorForm::Anthropic => ("Why the request failed.", generator.subschema_for::<AnthropicError>()),
            ErrorForm::Refused => {
                ("Which tensors cannot be replaced, and why.", generator.subschema_for::<Refused>())
            }
        };
        let content = json!({"application/json": {"schema": schema}});
        (form.name().to_owned(), json!({"description": description, "content": content}))
    };
    ErrorForm::ALL.into_iter().map(describe).collect()
}

#[derive(JsonSchema)]
struct Error {
    error: ErrorFacts,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct ErrorFacts {
    message: String,
    #[serde(rename = "type")]
    kind: String,
    param: Nullable<String>,
    code: Nullable<String>,
    /// Number of tokens of a prompt that does not fit, or of its beginning.
    #[serde(default)]
    n_prompt_tokens: Maybe<Whole>,
    /// Number of tokens of the context, where a prompt does not fit.
    #[serde(default)]
    n_ctx: Maybe<Whole>,
}

#[derive(JsonSchema)]
struct Refused {
    #[serde(flatten)]
    error: Error,
    refused: Vec<Value>,
}

#[derive(JsonSchema)]
struct OllamaError {
    error: String,
}

#[derive(JsonSchema)]
struct AnthropicError {
    #[serde(rename = "type")]
    #[schemars(extend("const" = "error"))]
    kind: String,
    error: AnthropicFacts,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct AnthropicFacts {
    #[serde(rename = "type")]
    kind: String,
    message: String,
}
