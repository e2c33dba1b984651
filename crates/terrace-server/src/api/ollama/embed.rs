//! Ollama's embeddings.

use crate::answer::embed as embed_texts;
use crate::api::embeddings::{VectorSettings, labelled, whole_texts};
use crate::app::{App, LoadedModel, Ready};
use crate::error::ApiError;
use crate::request::body::{Body, Fields, wrong};
use crate::request::{off_thread, prompt, texts};
use crate::response::json;
use axum::extract::State;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json as object};
use std::sync::Arc;
use std::time::Instant;
use terrace_serving::{EmbedJob, Embedded};

/// `POST /api/embed`.
///
/// # Errors
/// The model does not embed, or the request cannot be answered.
pub async fn embed(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
    let begin = Instant::now();
    let request = {
        let ready = Arc::clone(&ready);
        off_thread(move || parse(&body, &ready)).await?
    };
    let nanoseconds = |ms: f64| (ms * 1e6) as u64;
    let (mut embeddings, mut tokens, mut epoch) = (Vec::new(), 0, None);
    // Ollama's clients load a model by a request without a text.
    if let Some(job) = request.job {
        tokens = job.tokens();
        let Embedded { values, epoch: then, .. } = embed_texts(&app, &ready, job).await?;
        (embeddings, epoch) = (values, Some(then));
    }
    embeddings = with_empty(&request.empty, embeddings, request.width);
    embeddings.iter_mut().for_each(|values| request.wanted.shape(values));
    let answer = json(&OllamaEmbedded {
        model: &ready.name,
        embeddings,
        total_duration: nanoseconds(begin.elapsed().as_secs_f64() * 1e3),
        load_duration: 0,
        prompt_eval_count: tokens,
    });
    Ok(match epoch {
        Some(epoch) => labelled(answer, &ready, epoch),
        None => answer,
    })
}

/// `POST /api/embeddings`: the older form, of one text, whose vector keeps its length.
///
/// # Errors
/// The model does not embed, or the request cannot be answered.
pub async fn embeddings(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
    let job = {
        let ready = Arc::clone(&ready);
        off_thread(move || parse_old(&body, &ready)).await?
    };
    let Some(job) = job else { return Ok(json(&object!({"embedding": []}))) };
    let Embedded { values, epoch, .. } = embed_texts(&app, &ready, job).await?;
    let embedding = values.into_iter().next().unwrap_or_default();
    Ok(labelled(json(&OllamaEmbedding { embedding }), &ready, epoch))
}

/// Vectors of texts.
#[derive(Serialize, JsonSchema)]
pub struct OllamaEmbedded<'a> {
    model: &'a str,
    #[schemars(with = "Vec<Vec<Option<f32>>>")]
    embeddings: Vec<Vec<f32>>,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: usize,
}

/// The vector of a text.
#[derive(Serialize, JsonSchema)]
pub struct OllamaEmbedding {
    #[schemars(with = "Vec<Option<f32>>")]
    embedding: Vec<f32>,
}

struct Request {
    /// `None`: there is no text.
    job: Option<EmbedJob>,
    /// The places of texts without a token.
    empty: Vec<usize>,
    /// Length of vectors before they are cut.
    width: usize,
    wanted: VectorSettings,
}

/// Vectors of texts, with one of zeros for each that has no token: clients count on their number.
fn with_empty(empty: &[usize], mut embeddings: Vec<Vec<f32>>, width: usize) -> Vec<Vec<f32>> {
    for &place in empty {
        embeddings.insert(place, vec![0.0; width]);
    }
    embeddings
}

fn parse(body: &Body, ready: &Ready) -> Result<Request, ApiError> {
    let facts = whole_texts(ready)?;
    let mut fields = body.fields()?;
    let mut wanted = VectorSettings::of(facts);
    wanted.read_dimensions(&mut fields, facts)?;
    let truncate = fields.flag("truncate")?.unwrap_or(true);
    options(&mut fields)?;
    let input = fields.take("input");
    fields.finish()?;
    let tokens = |value| match value {
        Value::String(text) if truncate => texts::cut(&text, ready),
        Value::String(text) => prompt::tokens_of(&text, true, ready),
        other => Err(wrong("input", &other, "a string")),
    };
    let texts = match input {
        None => Vec::new(),
        Some(Value::String(text)) if text.is_empty() => Vec::new(),
        Some(text @ Value::String(_)) => vec![tokens(text)?],
        // Tokens, as elsewhere.
        Some(Value::Array(values)) if !truncate && !values.iter().all(Value::is_string) => {
            texts::texts("input", values.into(), ready)?
        }
        Some(Value::Array(values)) => {
            EmbedJob::check_count(values.len())?;
            values.into_iter().map(tokens).collect::<Result<_, ApiError>>()?
        }
        Some(other) => return Err(wrong("input", &other, "a string or an array of strings")),
    };
    let empty: Vec<usize> = (0..texts.len()).filter(|&place| texts[place].is_empty()).collect();
    let texts: Vec<Vec<i32>> = texts.into_iter().filter(|tokens| !tokens.is_empty()).collect();
    let job = if texts.is_empty() { None } else { Some(EmbedJob::new(texts, &ready.facts)?) };
    Ok(Request { job, empty, width: facts.width, wanted })
}

fn parse_old(body: &Body, ready: &Ready) -> Result<Option<EmbedJob>, ApiError> {
    whole_texts(ready)?;
    let mut fields = body.fields()?;
    let text = fields.text("prompt")?.unwrap_or_default();
    options(&mut fields)?;
    fields.finish()?;
    if text.is_empty() {
        return Ok(None);
    }
    Ok(Some(EmbedJob::new(vec![texts::cut(&text, ready)?], &ready.facts)?))
}

/// Options have no effect on embeddings, apart from the length of the context, which is the server's.
fn options(fields: &mut Fields) -> Result<(), ApiError> {
    match fields.take("options") {
        None | Some(Value::Object(_)) => Ok(()),
        Some(other) => Err(wrong("options", &other, "an object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_without_tokens_keep_their_places() {
        let zeros = vec![0.0, 0.0];
        let found = with_empty(&[0, 2], vec![vec![1.0, 2.0], vec![3.0, 4.0]], 2);
        assert_eq!(found, [zeros.clone(), vec![1.0, 2.0], zeros, vec![3.0, 4.0]]);
    }
}
