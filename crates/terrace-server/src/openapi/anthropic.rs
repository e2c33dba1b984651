//! Anthropic's API.

use super::errors::{BODY, ErrorForm, INVALID, KEYED, NOT_JSON, QUEUE, SERVER};
use super::fields::{Nullable, Object, Whole};
use super::openai::{CountedTokens, Event};
use super::operation::Operation;
use super::requests::StopText;
use super::sampling::LoraField;
use schemars::JsonSchema;
use serde_json::Value;

/// `POST /v1/messages`.
pub fn messages() -> Operation {
    Operation::new(
        "Continues a conversation, as Anthropic's API does.",
        "The response; with `stream`, events.",
    )
    .body::<MessagesRequest>()
    .json::<MessagesAnswer>()
    .content::<Event>("text/event-stream")
    .errors(ErrorForm::Anthropic, &[INVALID, KEYED, BODY, NOT_JSON, QUEUE, SERVER])
}

/// `POST /v1/messages/count_tokens`.
pub fn count_tokens() -> Operation {
    Operation::new("Counts the tokens of a conversation, as Anthropic's API does.", "The answer.")
        .body::<MessagesRequest>()
        .json::<CountedTokens>()
        .errors(ErrorForm::Anthropic, &[INVALID, KEYED, BODY, NOT_JSON, QUEUE, SERVER])
}

#[derive(JsonSchema)]
struct MessagesRequest {
    #[schemars(length(min = 1))]
    messages: Vec<Turn>,
    system: Option<Blocks>,
    #[schemars(range(min = -2, max = u32::MAX))]
    max_tokens: Option<Whole>,
    stop_sequences: Option<Vec<StopText>>,
    stream: Option<bool>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<Object>,
    thinking: Option<Object>,
    #[schemars(range(min = 0, max = 100))]
    temperature: Option<f64>,
    #[schemars(range(min = -1, max = i32::MAX))]
    top_k: Option<Whole>,
    #[schemars(range(min = 0, max = 1))]
    top_p: Option<f64>,
    #[serde(flatten)]
    lora: LoraField,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Turn {
    #[schemars(extend("enum" = ["user", "assistant"]))]
    role: String,
    content: Blocks,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Blocks {
    Text(String),
    Blocks(Vec<Value>),
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Tool {
    name: String,
    description: Option<String>,
    input_schema: Object,
}

#[derive(JsonSchema)]
struct MessagesAnswer {
    id: String,
    #[serde(rename = "type")]
    #[schemars(extend("const" = "message"))]
    kind: String,
    #[schemars(extend("const" = "assistant"))]
    role: String,
    model: String,
    content: Vec<Value>,
    #[schemars(
        extend("enum" = ["end_turn", "stop_sequence", "max_tokens", "tool_use", "model_context_window_exceeded"])
    )]
    stop_reason: String,
    stop_sequence: Nullable<String>,
    usage: Object,
}
