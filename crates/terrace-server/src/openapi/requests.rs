//! Groups of fields that requests of several APIs have.

use super::fields::{Maybe, Object, Whole};
use super::sampling::{ConstraintFields, LoraField};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;
use std::borrow::Cow;

/// A text that ends an answer.
pub struct StopText;

impl JsonSchema for StopText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "StopText".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1})
    }
}

/// Bytes in base 64.
pub struct Base64;

impl JsonSchema for Base64 {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Base64".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "contentEncoding": "base64"})
    }
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Stops {
    One(StopText),
    More(#[schemars(length(max = 64))] Vec<StopText>),
}

// Fields of every request for an answer, but Ollama's and Anthropic's.
#[derive(JsonSchema)]
pub struct AnswerFields {
    stop: Option<Stops>,
    stream: Option<bool>,
    cache_prompt: Option<bool>,
    /// The server slot that is to answer; -1: any.
    #[schemars(range(min = -1))]
    id_slot: Option<Whole>,
    /// Report in a stream how much of the prompt is done, in `prompt_progress`.
    return_progress: Option<bool>,
    #[serde(flatten)]
    lora: LoraField,
}

// Fields of OpenAI's requests.
#[derive(JsonSchema)]
pub struct OpenAiFields {
    /// Less than 0: until the answer ends.
    #[schemars(range(min = -2, max = u32::MAX))]
    max_completion_tokens: Option<Whole>,
    #[serde(flatten)]
    limits: LimitFields,
    stream_options: Option<StreamOptions>,
}

#[derive(JsonSchema)]
pub struct LimitFields {
    /// Less than 0: until the answer ends.
    #[schemars(range(min = -2, max = u32::MAX))]
    max_tokens: Option<Whole>,
    /// Less than 0: until the answer ends.
    #[schemars(range(min = -2, max = u32::MAX))]
    n_predict: Option<Whole>,
    /// Number of answers.
    #[schemars(range(min = 1, max = 64))]
    n: Option<Whole>,
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct StreamOptions {
    include_usage: Option<bool>,
    /// With `include_usage`: the numbers so far with each piece.
    continuous_usage_stats: Option<bool>,
    /// No effect.
    include_obfuscation: Option<bool>,
}

// `crate::request::chat::Chat::read`
#[derive(JsonSchema)]
pub struct ConversationFields {
    #[schemars(length(min = 1))]
    messages: Vec<Message>,
    add_generation_prompt: Option<bool>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<ToolChoice>,
    parallel_tool_calls: Option<bool>,
    continue_final_message: Option<bool>,
    #[serde(flatten)]
    constraint: ConstraintFields,
    #[serde(flatten)]
    thinking: ThinkingFields,
}

// `crate::request::chat::Chat::think`
#[derive(JsonSchema)]
pub struct ThinkingFields {
    #[schemars(extend("enum" = ["none", "auto", "deepseek", "deepseek-legacy", null]))]
    reasoning_format: Option<String>,
    reasoning_effort: Option<String>,
    enable_thinking: Option<bool>,
    #[schemars(range(min = -1, max = i32::MAX))]
    thinking_budget_tokens: Option<Whole>,
    chat_template_kwargs: Option<Object>,
    /// `type`: enabled, disabled or auto; `budget_tokens`.
    thinking: Option<Object>,
    /// A variable of the chat template.
    verbosity: Option<String>,
}

#[derive(JsonSchema)]
pub struct Message {
    #[schemars(extend("enum" = ["system", "developer", "user", "assistant", "tool"]))]
    role: String,
    content: Option<Content>,
    tool_calls: Option<Vec<Value>>,
    tool_call_id: Option<String>,
    name: Option<String>,
    reasoning_content: Option<String>,
    thinking: Option<String>,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Content {
    Text(String),
    Parts(Vec<TextPart>),
}

#[derive(JsonSchema)]
struct TextPart {
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["text", "input_text"]))]
    kind: String,
    text: String,
}

#[derive(JsonSchema)]
#[schemars(inline)]
pub struct Tool {
    #[serde(rename = "type", default)]
    #[schemars(extend("const" = "function"))]
    kind: Maybe<String>,
    function: Function,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Function {
    name: String,
    description: Option<String>,
    #[serde(default)]
    parameters: Maybe<Object>,
    strict: Option<bool>,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum ToolChoice {
    Name(#[schemars(extend("enum" = ["auto", "none", "required"]))] String),
    Tool(Object),
}

/// A text, tokens, or a list of prompts, in which each is a text or a list of texts and tokens.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Prompt {
    Text(#[schemars(length(min = 1))] String),
    List(#[schemars(length(min = 1, max = 128))] Vec<Value>),
    WithImages(ImagePrompt),
}

#[derive(JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct ImagePrompt {
    #[schemars(length(min = 1))]
    prompt_string: String,
    /// An image for each `<__media__>` in the text, if the server reads images.
    #[schemars(length(max = 64))]
    multimodal_data: Option<Vec<Base64>>,
}

/// A text, tokens, a list of both, an object with `prompt_string` or OpenAI's parts of text in `content`,
/// or a list of such texts.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum Texts {
    Text(String),
    List(#[schemars(length(min = 1, max = 2048))] Vec<Value>),
    Parts(Object),
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum MixedText {
    Text(String),
    List(Vec<TextOrToken>),
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum TextOrToken {
    Text(String),
    Token(Whole),
}

// Nothing but the name of the served model.
#[derive(JsonSchema)]
#[schemars(inline)]
pub struct ModelName {
    model: String,
}
