//! Embeddings and ranking, in the forms of OpenAI and of llama-server.

use super::errors::{BODY, ErrorForm, INVALID, KEYED, NOT_JSON, NOT_PROVIDED, QUEUE, SERVER};
use super::fields::{Maybe, Object, Whole};
use super::operation::Operation;
use super::requests::Texts;
use crate::api::embeddings::{Embeddings, NativeEmbedding, OwnFacts};
use schemars::JsonSchema;
use serde_json::Value;

/// `POST /v1/embeddings`.
pub fn openai() -> Operation {
    Operation::new("OpenAI: embeds texts.", "Vectors.")
        .body::<EmbeddingsRequest>()
        .json::<Embeddings<'_>>()
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, BODY, NOT_JSON, SERVER, QUEUE, NOT_PROVIDED])
}

/// `POST /embedding`.
pub fn native() -> Operation {
    Operation::new("Embeds texts, as llama.cpp's server does.", "Vectors.")
        .body::<NativeEmbeddingsRequest>()
        .json::<Vec<NativeEmbedding>>()
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, BODY, NOT_JSON, SERVER, QUEUE, NOT_PROVIDED])
}

/// `POST /rerank`.
pub fn rerank() -> Operation {
    Operation::new("Ranks documents by how well they answer a query.", "The best ones first.")
        .body::<RerankRequest>()
        .json::<Ranked>()
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, BODY, NOT_JSON, SERVER, QUEUE, NOT_PROVIDED])
}

/// Needs `input`.
#[derive(JsonSchema)]
struct EmbeddingsRequest {
    #[serde(default)]
    input: Maybe<Texts>,
    #[schemars(extend("enum" = ["float", "base64", null]))]
    encoding_format: Option<String>,
    #[serde(flatten)]
    vectors: VectorFields,
    /// Another name of `input`.
    content: Option<Value>,
    model: Option<Value>,
    user: Option<Value>,
}

/// Needs `content`.
#[derive(JsonSchema)]
struct NativeEmbeddingsRequest {
    #[serde(default)]
    content: Maybe<Texts>,
    /// Another name of `content`.
    input: Option<Value>,
    #[serde(flatten)]
    vectors: VectorFields,
}

#[derive(JsonSchema)]
struct VectorFields {
    /// Keep only the first values, before the vector is normalised. No more than the model has.
    #[schemars(range(min = 1))]
    dimensions: Option<Whole>,
    /// -1: as the model leaves it; 0: the largest value is 32760; otherwise the norm whose length is 1. By
    /// default 2.
    #[schemars(range(min = -1, max = i32::MAX))]
    embd_normalize: Option<Whole>,
}

#[derive(JsonSchema)]
struct RerankRequest {
    query: String,
    /// Texts, or objects with `text`.
    #[schemars(length(min = 1, max = 2048))]
    documents: Option<Vec<Value>>,
    /// In place of `documents`: the answer has the form of Text Embeddings Inference.
    texts: Option<Vec<Value>>,
    #[schemars(range(min = 0, max = u32::MAX))]
    top_n: Option<Whole>,
    return_documents: Option<bool>,
    return_text: Option<bool>,
}

#[derive(JsonSchema)]
#[serde(untagged)]
enum Ranked {
    Ranking(Ranking),
    List(Vec<Rank>),
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Ranking {
    model: String,
    #[schemars(extend("const" = "list"))]
    object: String,
    usage: RankingUsage,
    results: Vec<Rank>,
    #[serde(default)]
    terrace: Maybe<OwnFacts>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct RankingUsage {
    prompt_tokens: Whole,
    total_tokens: Whole,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Rank {
    index: Whole,
    relevance_score: Option<f64>,
    #[serde(default)]
    document: Maybe<Object>,
    score: Option<f64>,
    #[serde(default)]
    text: Maybe<String>,
}
