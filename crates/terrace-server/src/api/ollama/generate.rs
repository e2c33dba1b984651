//! Ollama's completions, of prompts and of conversations.

use super::error::{OllamaError, error_object};
use super::time::time;
use crate::advice::Reason;
use crate::answer::{Form, Framing, facts, respond};
use crate::app::{App, LoadedModel, Ready};
use crate::error::ApiError;
use crate::request::body::{Body, Fields};
use crate::request::{off_thread, prompt, sampling};
use crate::response::json;
use axum::extract::State;
use axum::response::Response;
use chrono::Utc;
use serde_json::{Value, json as object};
use std::sync::Arc;
use std::time::Instant;
use terrace_engine::serving::{Job, Prompt};
use terrace_engine::{Answer, Message, StopReason};
use terrace_ggml::llama::Sampling;

/// `POST /api/generate`.
///
/// # Errors
/// The request cannot be answered.
pub async fn generate(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, OllamaError> {
    answer(Kind::Generate, &app, &ready, body).await
}

/// `POST /api/chat`.
///
/// # Errors
/// The request cannot be answered.
pub async fn chat(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, OllamaError> {
    answer(Kind::Chat, &app, &ready, body).await
}

async fn answer(kind: Kind, app: &Arc<App>, ready: &Arc<Ready>, body: Body) -> Result<Response, OllamaError> {
    let begin = Instant::now();
    let request = {
        let (app, ready) = (Arc::clone(app), Arc::clone(ready));
        off_thread(move || parse(kind, &body, &app, &ready)).await?
    };
    let form = Ollama { kind, model: ready.name.clone(), begin };
    match request.job {
        Some(job) => Ok(respond(app, ready, job, request.stream, form).await?),
        // Ollama's clients load a model by a request without a prompt.
        None => {
            let mut value = form.object(String::new(), true);
            value["done_reason"] = "load".into();
            Ok(json(&value))
        }
    }
}

/// Which of the two endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Generate,
    Chat,
}

struct Request {
    job: Option<Job>,
    stream: bool,
}

fn parse(kind: Kind, body: &Body, app: &App, ready: &Ready) -> Result<Request, ApiError> {
    let mut fields = body.fields()?;
    let stream = fields.flag("stream")?.unwrap_or(true);
    let options = fields.take("options").unwrap_or_else(|| object!({}));
    let (sampling, stop, n_max) = options_of(Fields::within("options", options)?, app, ready)?;
    let prompt = match kind {
        Kind::Chat => conversation(&mut fields, ready)?,
        Kind::Generate => single(&mut fields, ready)?,
    };
    fields.finish()?;
    Ok(Request {
        job: prompt.map(|prompt| Job { prompt, n_max, sampling, stop, reuse: true, slot: None }),
        stream,
    })
}

type Chosen = (Sampling, Vec<String>, Option<usize>);

fn options_of(mut options: Fields, app: &App, ready: &Ready) -> Result<Chosen, ApiError> {
    let sampling = sampling::sampling(&mut options, app)?;
    let stop = sampling::stop(&mut options)?;
    let n_max = sampling::n_max(&mut options, app, &["num_predict"])?;
    let context = i64::try_from(ready.facts.context).unwrap_or(i64::MAX);
    if let Some(wanted) = options.integer("num_ctx", 1..=i64::MAX)?.filter(|&wanted| wanted > context) {
        let message = format!("`options.num_ctx` is {wanted}, but the server's context has {context} tokens");
        return Err(
            ApiError::unsupported("options.num_ctx", message).with(ready.advise(Reason::ContextTooSmall))
        );
    }
    options.finish()?;
    Ok((sampling, stop, n_max))
}

fn conversation(fields: &mut Fields, ready: &Ready) -> Result<Option<Prompt>, ApiError> {
    let messages =
        fields.take("messages").ok_or_else(|| ApiError::field("messages", "`messages` is missing"))?;
    if messages.as_array().is_some_and(Vec::is_empty) {
        return Ok(None);
    }
    chat_tokens(&prompt::messages(messages)?, ready).map(Some)
}

/// A single prompt, as a conversation of its own; as plain text if `raw` is set or the model has no
/// chat template.
fn single(fields: &mut Fields, ready: &Ready) -> Result<Option<Prompt>, ApiError> {
    let text = fields.text("prompt")?.unwrap_or_default();
    let system = fields.text("system")?.filter(|system| !system.is_empty());
    let raw = fields.flag("raw")?.unwrap_or(false);
    if text.is_empty() {
        return Ok(None);
    }
    if raw || ready.facts.chat_template.is_none() {
        if system.is_some() {
            return Err(ApiError::field(
                "system",
                "a system message needs a chat template, but the request is raw or the model has none",
            ));
        }
        return prompt::text_tokens(&text, ready).map(Some);
    }
    let system = system.into_iter().map(|text| Message::new("system", text));
    chat_tokens(&system.chain([Message::new("user", text)]).collect::<Vec<_>>(), ready).map(Some)
}

fn chat_tokens(messages: &[Message], ready: &Ready) -> Result<Prompt, ApiError> {
    prompt::chat_tokens(&prompt::render(messages, true, ready)?, ready)
}

/// Answers in Ollama's form.
struct Ollama {
    kind: Kind,
    model: String,
    begin: Instant,
}

impl Ollama {
    fn object(&self, text: String, done: bool) -> Value {
        let mut value = object!({"model": self.model, "created_at": time(Utc::now()), "done": done});
        match self.kind {
            Kind::Generate => value["response"] = text.into(),
            Kind::Chat => value["message"] = object!({"role": "assistant", "content": text}),
        }
        value
    }
}

impl Form for Ollama {
    fn whole(&mut self, text: String, answer: &Answer) -> Value {
        let mut value = self.object(text, true);
        let nanoseconds = |ms: f64| (ms * 1e6) as u64;
        value["done_reason"] = match answer.stop {
            StopReason::EndOfText | StopReason::StopString => "stop",
            StopReason::Length | StopReason::ContextFull | StopReason::Cancelled => "length",
        }
        .into();
        value["total_duration"] = nanoseconds(self.begin.elapsed().as_secs_f64() * 1e3).into();
        value["load_duration"] = 0.into();
        value["prompt_eval_count"] = answer.prompt_tokens.into();
        value["prompt_eval_duration"] = nanoseconds(answer.timings.prompt_ms).into();
        value["eval_count"] = answer.tokens.len().into();
        value["eval_duration"] = nanoseconds(answer.timings.decode_ms).into();
        value["terrace"] = facts(answer);
        value
    }

    fn piece(&mut self, text: String) -> Value {
        self.object(text, false)
    }

    fn end(&mut self, answer: &Answer) -> Vec<Value> {
        vec![self.whole(String::new(), answer)]
    }

    fn error(&self, error: &ApiError) -> Value {
        error_object(error)
    }

    fn framing(&self) -> Framing {
        Framing::Lines
    }
}
