//! Ollama's API.

use super::errors::{BODY, ErrorForm, INVALID, KEYED, NOT_FOUND, NOT_JSON, NOT_PROVIDED, QUEUE, SERVER};
use super::fields::{Object, Whole};
use super::operation::Operation;
use super::requests::{Message, Stops, Tool};
use super::sampling::{LoraField, SamplerFields};
use crate::api::ollama::{OllamaEmbedded, OllamaEmbedding};
use schemars::JsonSchema;
use serde_json::Value;

/// `GET /api/version`.
pub fn version() -> Operation {
    Operation::new("Ollama: the version of its API.", "The version.")
        .json::<Version>()
        .errors(ErrorForm::Ollama, &[KEYED])
}

/// `GET /api/tags`.
pub fn tags() -> Operation {
    Operation::new("Ollama: lists the one model.", "The one model.")
        .json::<OllamaModels>()
        .errors(ErrorForm::Ollama, &[KEYED, SERVER])
}

/// `GET /api/ps`.
pub fn ps() -> Operation {
    Operation::new("Ollama: lists the loaded model.", "The one model.")
        .json::<OllamaModels>()
        .errors(ErrorForm::Ollama, &[KEYED, SERVER])
}

/// `POST /api/show`.
pub fn show() -> Operation {
    Operation::new("Ollama: describes the model. The body has no effect.", "The model.")
        .body::<Object>()
        .json::<OllamaModel>()
        .errors(ErrorForm::Ollama, &[INVALID, KEYED, BODY, NOT_JSON, SERVER])
}

/// `POST /api/generate`.
pub fn generate() -> Operation {
    Operation::new("Ollama: continues a prompt; without one, says that the model is loaded.", LINES)
        .body::<OllamaGenerateRequest>()
        .json::<OllamaGenerated>()
        .content::<String>("application/x-ndjson")
        .errors(ErrorForm::Ollama, &[INVALID, KEYED, BODY, NOT_JSON, SERVER, QUEUE])
}

/// `POST /api/chat`.
pub fn chat() -> Operation {
    Operation::new("Ollama: continues a conversation; without turns, says that the model is loaded.", LINES)
        .body::<OllamaChatRequest>()
        .json::<OllamaAnswered>()
        .content::<String>("application/x-ndjson")
        .errors(ErrorForm::Ollama, &[INVALID, KEYED, BODY, NOT_JSON, SERVER, QUEUE])
}

/// `POST /api/pull`.
pub fn pull() -> Operation {
    Operation::new("Downloads a model from the hub; needs `--allow-pull`.", PULLED)
        .body::<PullRequest>()
        .content::<String>("application/x-ndjson")
        .json::<Status>()
        .errors(ErrorForm::Ollama, &[INVALID, NOT_FOUND, BODY, SERVER, NOT_PROVIDED])
        .errors(ErrorForm::OpenAi, &[KEYED])
}

/// `DELETE /api/delete`.
pub fn delete() -> Operation {
    Operation::new("Deletes a model that was downloaded; needs `--allow-delete`.", "It is deleted.")
        .body::<DeleteRequest>()
        .errors(ErrorForm::Ollama, &[INVALID, NOT_FOUND, BODY, &[409], SERVER, NOT_PROVIDED])
        .errors(ErrorForm::OpenAi, &[KEYED])
}

/// `POST /api/embed`.
pub fn embed() -> Operation {
    Operation::new("Ollama: embeds texts.", "Vectors of length 1.")
        .body::<OllamaEmbedRequest>()
        .json::<OllamaEmbedded<'_>>()
        .errors(ErrorForm::Ollama, &[INVALID, KEYED, BODY, NOT_JSON, SERVER, QUEUE, NOT_PROVIDED])
}

/// `POST /api/embeddings`.
pub fn embeddings() -> Operation {
    Operation::new("Ollama: embeds a text (older form).", "A vector.")
        .body::<OllamaEmbeddingsRequest>()
        .json::<OllamaEmbedding>()
        .errors(ErrorForm::Ollama, &[INVALID, KEYED, BODY, NOT_JSON, SERVER, QUEUE, NOT_PROVIDED])
}

const LINES: &str = "The response, as lines of JSON unless `stream` is false.";
const PULLED: &str = "Lines of JSON with `status`, `total` and `completed`; an error is the last one. Without \
                      `stream`, the last line.";

#[derive(JsonSchema)]
#[schemars(inline)]
struct Version {
    /// The release of Ollama whose API this server's has the form of.
    version: String,
    /// The release of Terrace.
    terrace: String,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct OllamaModels {
    models: Vec<ListedModel>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct ListedModel {
    name: String,
    model: String,
    modified_at: String,
    size: Whole,
    digest: String,
    details: Object,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct OllamaModel {
    details: Object,
    model_info: Object,
    capabilities: Vec<String>,
}

/// Fields of other servers that have no effect are accepted; fields that would change the answer, and
/// unknown ones, are refused.
#[derive(JsonSchema)]
struct OllamaGenerateRequest {
    prompt: Option<String>,
    system: Option<String>,
    raw: Option<bool>,
    #[serde(flatten)]
    answer: OllamaFields,
}

/// Fields of other servers that have no effect are accepted; fields that would change the answer, and
/// unknown ones, are refused.
#[derive(JsonSchema)]
struct OllamaChatRequest {
    messages: Vec<Message>,
    tools: Option<Vec<Tool>>,
    #[serde(flatten)]
    answer: OllamaFields,
}

#[derive(JsonSchema)]
struct OllamaFields {
    stream: Option<bool>,
    options: Option<OllamaOptions>,
    /// `json`, or a JSON schema.
    format: Option<Format>,
    think: Option<Think>,
}

#[derive(JsonSchema)]
struct OllamaOptions {
    #[serde(flatten)]
    samplers: SamplerFields,
    stop: Option<Stops>,
    /// Less than 0: until the answer ends.
    #[schemars(range(min = -2, max = u32::MAX))]
    num_predict: Option<Whole>,
    #[schemars(range(min = 1))]
    num_ctx: Option<Whole>,
    #[serde(flatten)]
    lora: LoraField,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Format {
    Json(#[schemars(extend("const" = "json"))] String),
    Schema(Object),
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Think {
    Whether(bool),
    Effort(String),
}

#[derive(JsonSchema)]
struct OllamaGenerated {
    #[serde(flatten)]
    done: Done,
    response: String,
}

#[derive(JsonSchema)]
struct OllamaAnswered {
    #[serde(flatten)]
    done: Done,
    message: Message,
}

#[derive(JsonSchema)]
struct Done {
    model: String,
    created_at: String,
    #[schemars(extend("const" = true))]
    done: bool,
    #[schemars(extend("enum" = ["stop", "length", "load"]))]
    done_reason: String,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct PullRequest {
    #[schemars(length(min = 1))]
    model: String,
    stream: Option<bool>,
    insecure: Option<bool>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Status {
    status: String,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct DeleteRequest {
    #[schemars(length(min = 1))]
    model: String,
}

#[derive(JsonSchema)]
struct OllamaEmbedRequest {
    input: Option<OllamaTexts>,
    /// Cut texts that are too long; by default true.
    truncate: Option<bool>,
    /// Keep only the first values, before the vector is normalised. No more than the model has.
    #[schemars(range(min = 1))]
    dimensions: Option<Whole>,
    options: Option<Object>,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum OllamaTexts {
    One(String),
    More(#[schemars(length(max = 2048))] Vec<Value>),
}

#[derive(JsonSchema)]
struct OllamaEmbeddingsRequest {
    prompt: Option<String>,
    options: Option<Object>,
}
