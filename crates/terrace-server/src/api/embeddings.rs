//! Embeddings, in the forms of OpenAI and of llama-server.

use crate::answer::embed;
use crate::app::{App, LoadedModel, Ready};
use crate::error::ApiError;
use crate::request::body::{Body, Fields};
use crate::request::{off_thread, texts};
use crate::response::{EPOCH, LOSSY, json};
use axum::extract::State;
use axum::http::HeaderValue;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json as object};
use std::sync::Arc;
use terrace_engine::{EmbeddingFacts, LossyUsed, normalize};
use terrace_ggml::llama::Pooling;
use terrace_serving::{EmbedJob, Embedded};

/// llama.cpp's name for the euclidean norm.
const EUCLIDEAN: i32 = 2;
/// Names of norms.
const NORMS: std::ops::RangeInclusive<i64> = -1..=i32::MAX as i64;

/// `POST /v1/embeddings`.
///
/// # Errors
/// The model does not embed texts as a whole, or the request cannot be answered.
pub async fn openai(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
    let request = {
        let ready = Arc::clone(&ready);
        off_thread(move || Request::parse(&body, &ready, Kind::OpenAi)).await?
    };
    let (tokens, wanted) = (request.job.tokens(), request.wanted);
    let done = embed(&app, &ready, request.job).await?;
    let epoch = done.epoch;
    let data = done.values.into_iter().enumerate().map(|(index, mut values)| {
        wanted.shape(&mut values);
        let embedding = if wanted.base64 { Values::Text(bytes_of(&values)) } else { Values::Numbers(values) };
        Embedding { object: "embedding", index, embedding }
    });
    let answer = Embeddings {
        object: "list",
        data: data.collect(),
        model: &ready.name,
        usage: Usage { prompt_tokens: tokens, total_tokens: tokens },
        terrace: OwnFacts::of(&ready),
    };
    Ok(labelled(json(&answer), &ready, epoch))
}

/// `POST /embedding` and `POST /embeddings`: llama-server's form, with a list of vectors for each text.
///
/// # Errors
/// The model does not embed, or the request cannot be answered.
pub async fn native(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
    let (request, width) = {
        let ready = Arc::clone(&ready);
        off_thread(move || Ok((Request::parse(&body, &ready, Kind::Native)?, facts(&ready)?.width))).await?
    };
    let Embedded { values, epoch, .. } = embed(&app, &ready, request.job).await?;
    let wanted = request.wanted;
    let one = |(index, mut values): (usize, Vec<f32>)| {
        let embedding = match wanted.pooling {
            // As in llama-server, those of tokens are never normalised.
            Pooling::None => values.chunks(width.max(1)).map(<[f32]>::to_vec).collect(),
            _ => {
                wanted.shape(&mut values);
                vec![values]
            }
        };
        NativeEmbedding { index, embedding }
    };
    let items: Vec<NativeEmbedding> = values.into_iter().enumerate().map(one).collect();
    Ok(labelled(json(&items), &ready, epoch))
}

/// Facts about the loaded model's embeddings.
///
/// # Errors
/// It does not.
pub fn facts(ready: &Ready) -> Result<&EmbeddingFacts, ApiError> {
    ready.facts.embedding.as_ref().ok_or_else(ApiError::no_embeddings)
}

/// Checks that a text as a whole has an embedding.
///
/// # Errors
/// Only its tokens have, or it has scores.
pub fn whole_texts(ready: &Ready) -> Result<&EmbeddingFacts, ApiError> {
    let facts = facts(ready)?;
    match facts.pooling {
        Pooling::Mean | Pooling::Cls | Pooling::Last => Ok(facts),
        pooling @ (Pooling::None | Pooling::Rank) => Err(ApiError::request(format!(
            "pooling type `{pooling}` leaves no embedding of a text as a whole"
        ))),
    }
}

/// Says in headers by which weights, and with what loss, vectors were computed.
pub fn labelled(mut response: Response, ready: &Ready, epoch: u64) -> Response {
    let headers = response.headers_mut();
    headers.insert(EPOCH, HeaderValue::from(epoch));
    if let Some(LossyUsed { marks, .. }) = LossyUsed::of(&ready.facts.plan) {
        let marks: Vec<String> =
            marks.iter().map(|mark| format!("{}={}", mark.setting, mark.value)).collect();
        headers.insert(LOSSY, HeaderValue::from_str(&marks.join("; ")).expect("names and numbers"));
    }
    response
}

/// Facts about vectors and scores that go beyond the API; absent if the model is computed exactly.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub struct OwnFacts {
    /// The lossy settings in effect, as `marks`.
    #[schemars(with = "Map<String, Value>")]
    lossy: LossyUsed,
}

impl OwnFacts {
    pub fn of(ready: &Ready) -> Option<Self> {
        Some(Self { lossy: LossyUsed::of(&ready.facts.plan)? })
    }
}

/// Which form.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    OpenAi,
    Native,
}

/// A request's settings of the vectors.
#[derive(Clone, Copy)]
pub struct VectorSettings {
    pub norm: i32,
    /// Number of values to keep.
    pub dimensions: Option<usize>,
    base64: bool,
    pooling: Pooling,
}

impl VectorSettings {
    /// Vectors of length 1.
    pub const fn of(facts: &EmbeddingFacts) -> Self {
        Self { norm: EUCLIDEAN, dimensions: None, base64: false, pooling: facts.pooling }
    }

    /// Reads the number of values to keep.
    ///
    /// # Errors
    /// The model's vectors have fewer.
    pub fn read_dimensions(&mut self, fields: &mut Fields, facts: &EmbeddingFacts) -> Result<(), ApiError> {
        let most = i64::try_from(facts.width).unwrap_or(i64::MAX);
        let count = fields.integer("dimensions", 1..=most)?;
        self.dimensions = count.and_then(|count| usize::try_from(count).ok());
        Ok(())
    }

    /// Cuts a vector, and makes its length that which is wanted.
    pub fn shape(&self, values: &mut Vec<f32>) {
        if let Some(count) = self.dimensions {
            values.truncate(count);
        }
        normalize(values, self.norm);
    }
}

struct Request {
    job: EmbedJob,
    wanted: VectorSettings,
}

impl Request {
    fn parse(body: &Body, ready: &Ready, kind: Kind) -> Result<Self, ApiError> {
        let facts = match kind {
            Kind::OpenAi => whole_texts(ready)?,
            Kind::Native => facts(ready)?,
        };
        if facts.pooling == Pooling::Rank {
            return Err(ApiError::request("the server ranks documents (pooling type `rank`) at /rerank"));
        }
        let mut fields = body.fields()?;
        let mut wanted = VectorSettings::of(facts);
        if let Some(norm) = fields.integer("embd_normalize", NORMS)? {
            wanted.norm = i32::try_from(norm).unwrap_or(EUCLIDEAN);
        }
        wanted.read_dimensions(&mut fields, facts)?;
        if kind == Kind::OpenAi {
            wanted.base64 = match fields.text("encoding_format")?.as_deref() {
                None | Some("float") => false,
                Some("base64") => true,
                Some(other) => {
                    let message = format!("`encoding_format` is `{other}`, but must be float or base64");
                    return Err(ApiError::field("encoding_format", message));
                }
            };
        }
        let (input, content) = (fields.take("input"), fields.take("content"));
        fields.finish()?;
        let texts = match (input, content) {
            (Some(input), _) => texts::texts("input", input, ready)?,
            (None, Some(content)) => texts::texts("content", content, ready)?,
            (None, None) => return Err(ApiError::missing("input")),
        };
        Ok(Self { job: EmbedJob::new(texts, &ready.facts)?, wanted })
    }
}

/// The answer in OpenAI's form.
#[derive(Serialize, JsonSchema)]
pub struct Embeddings<'a> {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: Vec<Embedding>,
    model: &'a str,
    usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    terrace: Option<OwnFacts>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Embedding {
    #[schemars(extend("const" = "embedding"))]
    object: &'static str,
    index: usize,
    /// Numbers, or the bytes of floats in base 64.
    embedding: Values,
}

// A number that is not finite is written as null.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Values {
    Numbers(#[schemars(with = "Vec<Option<f32>>")] Vec<f32>),
    Text(String),
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

/// The vectors of one text in llama-server's form.
#[derive(Serialize, JsonSchema)]
pub struct NativeEmbedding {
    index: usize,
    /// One vector; with pooling `none`, one for each token.
    #[schemars(with = "Vec<Vec<Option<f32>>>")]
    embedding: Vec<Vec<f32>>,
}

/// The bytes of numbers, the low ones first, in base 64.
fn bytes_of(values: &[f32]) -> String {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    STANDARD.encode(bytes)
}

/// `POST /rerank` and its other names: how well documents answer a query, the best ones first. With
/// `texts` in place of `documents`, in the form of Text Embeddings Inference.
///
/// # Errors
/// The server was not started for this, or the request cannot be answered.
pub async fn rerank(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
    let request = {
        let (app, ready) = (Arc::clone(&app), Arc::clone(&ready));
        off_thread(move || Ranking::parse(&body, &app, &ready)).await?
    };
    let Ranking { job, mut documents, most, plain, with_texts } = request;
    let tokens = job.tokens();
    let done = embed(&app, &ready, job).await?;
    let score = |values: &Vec<f32>| values.first().copied().unwrap_or(f32::NEG_INFINITY);
    let mut scores: Vec<(usize, f32)> = done.values.iter().map(score).enumerate().collect();
    scores.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    scores.truncate(most);
    let results = scores.into_iter().map(|(index, score)| {
        let mut result = object!({"index": index});
        result[if plain { "score" } else { "relevance_score" }] = score.into();
        if with_texts {
            let text = std::mem::take(&mut documents[index]);
            match plain {
                true => result["text"] = text.into(),
                false => result["document"] = object!({"text": text}),
            }
        }
        result
    });
    let results: Vec<_> = results.collect();
    let answer = if plain {
        json(&results)
    } else {
        let usage = object!({"prompt_tokens": tokens, "total_tokens": tokens});
        let mut answer = object!({"model": ready.name, "object": "list", "usage": usage, "results": results});
        if let Some(own) = OwnFacts::of(&ready) {
            answer["terrace"] = serde_json::to_value(own).expect("names and texts");
        }
        json(&answer)
    };
    Ok(labelled(answer, &ready, done.epoch))
}

struct Ranking {
    job: EmbedJob,
    documents: Vec<String>,
    /// Number of documents to return.
    most: usize,
    /// True if the answer is a plain list.
    plain: bool,
    with_texts: bool,
}

impl Ranking {
    fn parse(body: &Body, app: &App, ready: &Ready) -> Result<Self, ApiError> {
        if facts(ready)?.pooling != Pooling::Rank {
            let error = ApiError::not_supported("no_ranking", "this server does not rank documents");
            return Err(error.with(app.advise(crate::advice::Reason::NoRanking)));
        }
        let mut fields = body.fields()?;
        let query = fields.required_text("query")?;
        let (documents, texts) = (fields.take("documents"), fields.take("texts"));
        let plain = texts.is_some();
        let with_texts = fields.flag(if plain { "return_text" } else { "return_documents" })?;
        let most = fields.integer("top_n", 0..=i64::from(u32::MAX))?;
        fields.finish()?;
        let name = if plain { "texts" } else { "documents" };
        let documents = texts.or(documents).ok_or_else(|| ApiError::missing(name))?;
        let documents = documents_of(name, documents)?;
        // Each is tokenised together with the query.
        EmbedJob::check_count(documents.len())?;
        let asked = documents.iter().map(|document| texts::pair(&query, document, ready));
        let job = EmbedJob::new(asked.collect::<Result<_, _>>()?, &ready.facts)?;
        let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(documents.len());
        Ok(Self { job, documents, most, plain, with_texts: with_texts.unwrap_or(false) })
    }
}

/// Texts, or objects with a text.
fn documents_of(name: &str, value: serde_json::Value) -> Result<Vec<String>, ApiError> {
    let wrong = || ApiError::field(name, format!("`{name}` is not an array of texts, or is empty"));
    let Value::Array(values) = value else { return Err(wrong()) };
    let text = |value| match value {
        Value::String(text) => Ok(text),
        Value::Object(map) => match map.get("text") {
            Some(Value::String(text)) => Ok(text.clone()),
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    };
    if values.is_empty() { Err(wrong()) } else { values.into_iter().map(text).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_are_written_exactly() {
        assert_eq!(bytes_of(&[1.0, -2.5]), "AACAPwAAIMA=");
        let item = Embedding { object: "embedding", index: 0, embedding: Values::Numbers(vec![0.1]) };
        assert_eq!(
            serde_json::to_string(&item).unwrap(),
            r#"{"object":"embedding","index":0,"embedding":[0.1]}"#
        );
    }

    #[test]
    fn vectors_are_cut_before_they_are_normalised() {
        let wanted = VectorSettings { norm: 2, dimensions: Some(2), base64: false, pooling: Pooling::Mean };
        let mut values = vec![3.0, 4.0, 100.0];
        wanted.shape(&mut values);
        assert_eq!(values, [0.6, 0.8]);
    }

    #[test]
    fn documents_are_texts() {
        let two = documents_of("documents", json!(["a", {"text": "b"}])).unwrap();
        assert_eq!(two, ["a", "b"]);
        for wrong in [json!([]), json!("a"), json!([1]), json!([{}])] {
            assert!(documents_of("documents", wrong).is_err());
        }
    }
}
