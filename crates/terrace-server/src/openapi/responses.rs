//! OpenAI's API of responses.

use super::errors::{BODY, ErrorForm, INVALID, KEYED, NOT_JSON, QUEUE, SERVER};
use super::fields::{Maybe, Object, Whole};
use super::native::Facts;
use super::openai::{CountedTokens, Event};
use super::operation::Operation;
use super::requests::{AnswerFields, ThinkingFields};
use super::sampling::SamplerFields;
use schemars::JsonSchema;
use serde_json::Value;

/// `POST /v1/responses`.
pub fn responses() -> Operation {
    Operation::new("Answers a list of items, as OpenAI's API does.", ANSWER)
        .body::<ResponseRequest>()
        .json::<Response>()
        .content::<Event>("text/event-stream")
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, BODY, NOT_JSON, QUEUE, SERVER])
}

/// `POST /v1/responses/input_tokens`.
pub fn input_tokens() -> Operation {
    Operation::new("Counts the tokens of a list of items, as OpenAI's API does.", "The answer.")
        .body::<ResponseRequest>()
        .json::<CountedTokens>()
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, BODY, NOT_JSON, QUEUE, SERVER])
}

const ANSWER: &str = "The response; with `stream`, events that end with `response.completed`, \
                      `response.incomplete` or `response.failed`.";

#[derive(JsonSchema)]
struct ResponseRequest {
    input: Input,
    instructions: Option<String>,
    /// Less than 0: until the answer ends.
    #[schemars(range(min = -2, max = u32::MAX))]
    max_output_tokens: Option<Whole>,
    /// Functions, custom tools and namespaces of both; others are left out.
    tools: Option<Vec<Tool>>,
    tool_choice: Option<ToolChoice>,
    parallel_tool_calls: Option<bool>,
    text: Option<Text>,
    reasoning: Option<Reasoning>,
    include: Option<Vec<String>>,
    #[schemars(range(min = 0, max = 100))]
    top_logprobs: Option<Whole>,
    metadata: Option<Object>,
    /// No effect: nothing is stored.
    store: Option<bool>,
    /// No effect: a prompt that is too long is refused.
    #[schemars(extend("enum" = ["auto", "disabled", null]))]
    truncation: Option<String>,
    #[schemars(range(min = 1, max = u32::MAX))]
    max_tool_calls: Option<Whole>,
    /// Refused: nothing is stored.
    previous_response_id: Option<()>,
    /// A grammar in llama.cpp's form.
    grammar: Option<String>,
    #[serde(flatten)]
    thinking: ThinkingFields,
    #[serde(flatten)]
    samplers: SamplerFields,
    #[serde(flatten)]
    answer: AnswerFields,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Input {
    Text(String),
    Items(#[schemars(length(min = 1))] Vec<Item>),
}

/// A message, `reasoning`, `function_call`, `function_call_output`, `custom_tool_call` or
/// `custom_tool_call_output`.
#[derive(JsonSchema)]
#[schemars(inline)]
struct Item {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    #[schemars(extend("enum" = ["system", "developer", "user", "assistant"]))]
    role: Maybe<String>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Tool {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    name: Maybe<String>,
    description: Option<String>,
    parameters: Option<Object>,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum ToolChoice {
    Name(String),
    Tool(Object),
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Text {
    format: Option<Object>,
    verbosity: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Reasoning {
    effort: Option<String>,
    summary: Option<Value>,
}

#[derive(JsonSchema)]
struct Response {
    id: String,
    #[schemars(extend("const" = "response"))]
    object: String,
    created_at: Whole,
    completed_at: Option<Whole>,
    #[schemars(extend("enum" = ["completed", "incomplete"]))]
    status: String,
    incomplete_details: Option<Object>,
    model: String,
    #[schemars(length(min = 1))]
    output: Vec<OutputItem>,
    usage: ResponseUsage,
    #[serde(default)]
    timings: Maybe<Object>,
    #[serde(default)]
    terrace: Maybe<Facts>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct OutputItem {
    id: String,
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["message", "reasoning", "function_call", "custom_tool_call"]))]
    kind: String,
    #[schemars(extend("enum" = ["completed", "incomplete"]))]
    status: String,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct ResponseUsage {
    input_tokens: Whole,
    output_tokens: Whole,
    total_tokens: Whole,
}
