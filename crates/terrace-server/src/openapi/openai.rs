//! OpenAI's API: chat and text completions, models.

use super::errors::{BODY, ErrorForm, INVALID, KEYED, NOT_FOUND, NOT_JSON, NOT_PROVIDED, QUEUE, SERVER};
use super::fields::{Maybe, Nullable, Object, Whole};
use super::operation::Operation;
use super::requests::{AnswerFields, ConversationFields, OpenAiFields, Prompt};
use super::sampling::{ConstraintFields, SamplerFields};
use schemars::JsonSchema;
use serde_json::{Value, json};

impl Operation {
    /// Answers with generated text: whole, or as events. Errors are in OpenAI's form.
    pub fn generates<T: JsonSchema>(self) -> Self {
        self.json::<T>()
            .content::<Event>("text/event-stream")
            .errors(ErrorForm::OpenAi, &[INVALID, KEYED, BODY, NOT_JSON, QUEUE, SERVER, NOT_PROVIDED])
    }
}

/// `POST /v1/chat/completions`.
pub fn chat() -> Operation {
    Operation::new("Continues a conversation, as OpenAI's API does.", ANSWER)
        .body::<ChatRequest>()
        .generates::<ChatCompletion>()
}

/// `POST /v1/chat/completions/input_tokens`.
pub fn input_tokens() -> Operation {
    Operation::new("Counts the tokens of a conversation, as llama-server does.", "The answer.")
        .body::<ChatRequest>()
        .json::<CountedTokens>()
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, BODY, NOT_JSON, QUEUE, SERVER])
}

/// `POST /v1/completions`.
pub fn text() -> Operation {
    Operation::new("Continues a text, as OpenAI's API does.", ANSWER)
        .body::<TextRequest>()
        .generates::<TextCompletion>()
}

/// `GET /v1/models`.
pub fn models() -> Operation {
    Operation::new("Lists the one model.", "The one model.")
        .open()
        .json::<Models>()
        .errors(ErrorForm::OpenAi, &[&[403, 503]])
}

/// `GET /v1/models/{name}`.
pub fn model() -> Operation {
    Operation::new("Describes the model.", "The model.")
        .path("name", None, json!({"type": "string", "minLength": 1}))
        .json::<Model>()
        .errors(ErrorForm::OpenAi, &[INVALID, NOT_FOUND, KEYED, SERVER])
}

const ANSWER: &str = "The response; with `stream`, events that end with `[DONE]`.";

/// Fields of other servers that have no effect are accepted; fields that would change the answer, and
/// unknown ones, are refused.
#[derive(JsonSchema)]
struct ChatRequest {
    #[serde(flatten)]
    conversation: ConversationFields,
    #[serde(flatten)]
    openai: OpenAiFields,
    #[serde(flatten)]
    samplers: SamplerFields,
    #[serde(flatten)]
    answer: AnswerFields,
    logprobs: Option<bool>,
    #[schemars(range(min = 0, max = 100))]
    top_logprobs: Option<Whole>,
}

/// Fields of other servers that have no effect are accepted; fields that would change the answer, and
/// unknown ones, are refused.
#[derive(JsonSchema)]
struct TextRequest {
    prompt: Prompt,
    #[serde(flatten)]
    openai: OpenAiFields,
    #[serde(flatten)]
    samplers: SamplerFields,
    #[serde(flatten)]
    answer: AnswerFields,
    #[serde(flatten)]
    constraint: ConstraintFields,
    #[schemars(range(min = 0, max = 100))]
    logprobs: Option<Whole>,
    /// Begin answers with their prompts. With `logprobs`, the tokens of the prompt are reported with their
    /// probabilities, too: `null` for the first one, and the token that ends the text comes last, if one
    /// does.
    echo: Option<bool>,
}

/// Number of tokens.
#[derive(JsonSchema)]
pub struct CountedTokens {
    input_tokens: Whole,
}

#[derive(JsonSchema)]
struct ChatCompletion {
    #[schemars(extend("const" = "chat.completion"))]
    object: String,
    #[serde(flatten)]
    completion: Completion,
}

#[derive(JsonSchema)]
struct TextCompletion {
    #[schemars(extend("const" = "text_completion"))]
    object: String,
    #[serde(flatten)]
    completion: Completion,
}

#[derive(JsonSchema)]
struct Completion {
    id: String,
    created: Whole,
    model: String,
    #[schemars(length(min = 1))]
    choices: Vec<Choice>,
    usage: Usage,
    terrace: super::native::Facts,
    #[serde(default)]
    timings: Maybe<Object>,
}

#[derive(JsonSchema)]
struct Choice {
    index: Whole,
    logprobs: Option<Object>,
    #[schemars(extend("enum" = ["stop", "length", "tool_calls"]))]
    finish_reason: String,
    #[serde(default)]
    text: Maybe<String>,
    #[serde(default)]
    message: Maybe<AnsweredMessage>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct AnsweredMessage {
    #[schemars(extend("const" = "assistant"))]
    role: String,
    content: Nullable<String>,
    #[serde(default)]
    reasoning_content: Maybe<String>,
    #[serde(default)]
    tool_calls: Maybe<Vec<Value>>,
}

#[derive(JsonSchema)]
struct Usage {
    prompt_tokens: Whole,
    completion_tokens: Whole,
    total_tokens: Whole,
    #[serde(default)]
    prompt_tokens_details: Maybe<Object>,
    #[serde(default)]
    completion_tokens_details: Maybe<Object>,
}

#[derive(JsonSchema)]
struct Model {
    id: String,
    #[schemars(extend("const" = "model"))]
    object: String,
    created: Whole,
    owned_by: String,
    meta: Object,
}

#[derive(JsonSchema)]
struct Models {
    #[schemars(extend("const" = "list"))]
    object: String,
    data: Vec<Model>,
}

/// A server-sent event.
#[derive(JsonSchema)]
pub struct Event {
    /// An object of the answer as JSON, or `[DONE]`.
    data: String,
}
