//! llama-server's own endpoints: completions, tokens, templates.

use crate::answer::{Form, Framing, facts, respond};
use crate::app::{App, LoadedModel, Ready};
use crate::error::ApiError;
use crate::request::body::{Body, Fields, wrong};
use crate::request::{off_thread, prompt, sampling};
use crate::response::json;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json as object};
use std::sync::Arc;
use terrace_engine::serving::Job;
use terrace_engine::{Answer, StopReason};

/// `POST /completion`.
///
/// # Errors
/// A request that cannot be answered.
pub async fn completion(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
    let (job, stream, return_tokens) = {
        let (app, ready) = (Arc::clone(&app), Arc::clone(&ready));
        off_thread(move || parse(&body.0, &app, &ready)).await?
    };
    let form = Native { model: ready.name.clone(), return_tokens };
    respond(&app, &ready, job, stream, form).await
}

fn parse(body: &[u8], app: &App, ready: &Ready) -> Result<(Job, bool, bool), ApiError> {
    let mut fields = Fields::parse(body)?;
    let sampling = sampling::sampling(&mut fields, app)?;
    let stop = sampling::stop(&mut fields)?;
    let n_max = sampling::n_max(&mut fields, app, &["n_predict", "max_tokens"])?;
    let stream = fields.flag("stream")?.unwrap_or(false);
    let reuse = fields.flag("cache_prompt")?.unwrap_or(true);
    let return_tokens = fields.flag("return_tokens")?.unwrap_or(false);
    let prompt = prompt::prompt(&mut fields, ready)?;
    fields.finish()?;
    Ok((Job { prompt, n_max, sampling, stop, reuse }, stream, return_tokens))
}

/// The form of its answers.
struct Native {
    model: String,
    return_tokens: bool,
}

impl Native {
    fn last(&self, text: String, answer: &Answer) -> Value {
        let timings = &answer.timings;
        object!({
            "index": 0,
            "content": text,
            "tokens": if self.return_tokens { &answer.tokens[..] } else { &[] },
            "stop": true,
            "stop_type": stop_type(answer.stop),
            "stopping_word": answer.stop_string.as_deref().unwrap_or_default(),
            "model": self.model,
            "tokens_predicted": answer.tokens.len(),
            "tokens_evaluated": answer.prompt_tokens,
            "tokens_cached": answer.reused,
            "truncated": answer.stop == StopReason::ContextFull,
            "timings": {
                "cache_n": answer.reused,
                "prompt_n": answer.prompt_tokens - answer.reused,
                "prompt_ms": timings.prompt_ms,
                "prompt_per_second": timings.prompt_tps,
                "predicted_n": answer.tokens.len(),
                "predicted_ms": timings.decode_ms,
                "predicted_per_second": timings.decode_tps,
            },
            "terrace": facts(answer),
        })
    }
}

impl Form for Native {
    fn whole(&mut self, text: String, answer: &Answer) -> Value {
        self.last(text, answer)
    }

    fn piece(&mut self, text: String) -> Value {
        object!({"index": 0, "content": text, "stop": false})
    }

    fn end(&mut self, answer: &Answer) -> Vec<Value> {
        vec![self.last(String::new(), answer)]
    }

    fn framing(&self) -> Framing {
        Framing::Events { done: false }
    }
}

const fn stop_type(stop: StopReason) -> &'static str {
    match stop {
        StopReason::EndOfText => "eos",
        StopReason::StopString => "word",
        StopReason::Length | StopReason::ContextFull => "limit",
        StopReason::Cancelled => "none",
    }
}

/// `POST /tokenize`: `{"content": TEXT}` to `{"tokens": [...]}`, with their texts where `with_pieces`.
///
/// # Errors
/// No text.
pub async fn tokenize(LoadedModel(ready): LoadedModel, body: Body) -> Result<Response, ApiError> {
    off_thread(move || {
        let mut fields = Fields::parse(&body.0)?;
        let content = fields.text("content")?;
        let content = content.ok_or_else(|| ApiError::field("content", "`content` is missing"))?;
        let add_special = fields.flag("add_special")?.unwrap_or(false);
        let parse_special = fields.flag("parse_special")?.unwrap_or(true);
        let with_pieces = fields.flag("with_pieces")?.unwrap_or(false);
        fields.finish()?;
        let tokens = ready.ask(|serving| serving.tokenize(&content, add_special, parse_special))??;
        if !with_pieces {
            return Ok(json(&object!({"tokens": tokens})));
        }
        let piece = |&token: &i32| {
            let bytes = ready.ask(|serving| serving.detokenize(&[token]))??;
            // Part of a character is no text; llama-server gives its bytes.
            let piece = match std::str::from_utf8(&bytes) {
                Ok(text) => object!(text),
                Err(_) => object!(bytes),
            };
            Ok(object!({"id": token, "piece": piece}))
        };
        let pieces: Vec<Value> = tokens.iter().map(piece).collect::<Result<_, ApiError>>()?;
        Ok(json(&object!({"tokens": pieces})))
    })
    .await
}

/// `POST /detokenize`: `{"tokens": [...]}` to `{"content": TEXT}`.
///
/// # Errors
/// No tokens.
pub async fn detokenize(LoadedModel(ready): LoadedModel, body: Body) -> Result<Response, ApiError> {
    off_thread(move || {
        let mut fields = Fields::parse(&body.0)?;
        let tokens = match fields.take("tokens") {
            Some(Value::Array(values)) => prompt::tokens("tokens", &values)?,
            Some(other) => return Err(wrong("tokens", &other, "an array of tokens")),
            None => return Err(ApiError::field("tokens", "`tokens` is missing")),
        };
        fields.finish()?;
        if let Some(wrong) = tokens.iter().find(|&&token| !ready.facts.has_token(token)) {
            let vocabulary = ready.facts.vocabulary;
            return Err(ApiError::field(
                "tokens",
                format!("{wrong} is not a token: the vocabulary has {vocabulary}"),
            ));
        }
        let bytes = ready.ask(|serving| serving.detokenize(&tokens))??;
        Ok(json(&object!({"content": String::from_utf8_lossy(&bytes)})))
    })
    .await
}

/// `POST /apply-template`: `{"messages": [...]}` to `{"prompt": TEXT}`.
///
/// # Errors
/// No conversation, or none that the template takes.
pub async fn apply_template(LoadedModel(ready): LoadedModel, body: Body) -> Result<Response, ApiError> {
    off_thread(move || {
        let mut fields = Fields::parse(&body.0)?;
        let text = prompt::conversation(&mut fields, &ready)?;
        fields.finish()?;
        Ok(json(&object!({"prompt": text})))
    })
    .await
}
