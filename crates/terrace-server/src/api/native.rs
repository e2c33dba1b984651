//! llama-server's own endpoints: completions and templates.

use crate::answer::{Form, Framing, facts, respond};
use crate::app::{App, LoadedModel, Ready};
use crate::error::ApiError;
use crate::request::body::Body;
use crate::request::{off_thread, prompt, sampling, slot};
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
/// The request cannot be answered.
pub async fn completion(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
    let (job, stream, return_tokens) = {
        let (app, ready) = (Arc::clone(&app), Arc::clone(&ready));
        off_thread(move || parse(&body, &app, &ready)).await?
    };
    let form = Native { model: ready.name.clone(), return_tokens };
    respond(&app, &ready, job, stream, form).await
}

fn parse(body: &Body, app: &App, ready: &Ready) -> Result<(Job, bool, bool), ApiError> {
    let mut fields = body.fields()?;
    let sampling = sampling::sampling(&mut fields, app)?;
    let stop = sampling::stop(&mut fields)?;
    let n_max = sampling::n_max(&mut fields, app, &["n_predict", "max_tokens"])?;
    let stream = fields.flag("stream")?.unwrap_or(false);
    let reuse = fields.flag("cache_prompt")?.unwrap_or(true);
    let slot = slot::slot(&mut fields, ready)?;
    let return_tokens = fields.flag("return_tokens")?.unwrap_or(false);
    let prompt = prompt::prompt(&mut fields, ready)?;
    fields.finish()?;
    Ok((Job { prompt, n_max, sampling, stop, reuse, slot }, stream, return_tokens))
}

/// Answers in llama-server's form.
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

/// `POST /apply-template`: turns `{"messages": [...]}` into `{"prompt": TEXT}`.
///
/// # Errors
/// There is no conversation, or the template refuses it.
pub async fn apply_template(LoadedModel(ready): LoadedModel, body: Body) -> Result<Response, ApiError> {
    off_thread(move || {
        let mut fields = body.fields()?;
        let text = prompt::conversation(&mut fields, &ready)?;
        fields.finish()?;
        Ok(json(&object!({"prompt": text})))
    })
    .await
}
