//! OpenAI's completions, of conversations and of plain text.

use crate::answer::{Form, Framing, facts, respond};
use crate::app::{App, LoadedModel, Ready, unix_seconds};
use crate::error::ApiError;
use crate::request::body::{Body, Fields};
use crate::request::{off_thread, prompt, sampling, slot};
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use terrace_engine::serving::Job;
use terrace_engine::{Answer, StopReason};

/// `POST /v1/chat/completions`.
///
/// # Errors
/// The request cannot be answered.
pub async fn chat(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
    complete(Kind::Chat, &app, &ready, body).await
}

/// `POST /v1/completions`.
///
/// # Errors
/// The request cannot be answered.
pub async fn text(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
    complete(Kind::Text, &app, &ready, body).await
}

async fn complete(kind: Kind, app: &Arc<App>, ready: &Arc<Ready>, body: Body) -> Result<Response, ApiError> {
    let request = {
        let (app, ready) = (Arc::clone(app), Arc::clone(ready));
        off_thread(move || Request::parse(kind, &body, &app, &ready)).await?
    };
    let form = Completion::new(kind, ready.name.clone(), request.include_usage);
    respond(app, ready, request.job, request.stream, form).await
}

/// Which of the two endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Chat,
    Text,
}

/// A parsed request.
struct Request {
    job: Job,
    stream: bool,
    include_usage: bool,
}

impl Request {
    fn parse(kind: Kind, body: &Body, app: &App, ready: &Ready) -> Result<Self, ApiError> {
        let mut fields = body.fields()?;
        // Before the prompt, which takes longest to check.
        let sampling = sampling::sampling(&mut fields, app)?;
        let stop = sampling::stop(&mut fields)?;
        let n_max = sampling::n_max(&mut fields, app, &["max_completion_tokens", "max_tokens", "n_predict"])?;
        let stream = fields.flag("stream")?.unwrap_or(false);
        let reuse = fields.flag("cache_prompt")?.unwrap_or(true);
        let slot = slot::slot(&mut fields, ready)?;
        let include_usage = match fields.take("stream_options") {
            None => false,
            Some(options) => {
                let mut options = Fields::within("stream_options", options)?;
                let usage = options.flag("include_usage")?.unwrap_or(false);
                options.finish()?;
                usage
            }
        };
        let prompt = match kind {
            Kind::Chat => prompt::chat_tokens(&prompt::conversation(&mut fields, ready)?, ready)?,
            Kind::Text => prompt::prompt(&mut fields, ready)?,
        };
        fields.finish()?;
        Ok(Self { job: Job { prompt, n_max, sampling, stop, reuse, slot }, stream, include_usage })
    }
}

/// Answers in OpenAI's form.
struct Completion {
    kind: Kind,
    id: String,
    created: u64,
    model: String,
    include_usage: bool,
}

impl Completion {
    fn new(kind: Kind, model: String, include_usage: bool) -> Self {
        let prefix = match kind {
            Kind::Chat => "chatcmpl",
            Kind::Text => "cmpl",
        };
        // Each state has a random seed from the system.
        let random = || RandomState::new().hash_one(0_u8);
        let id = format!("{prefix}-{:016x}{:016x}", random(), random());
        Self { kind, id, created: unix_seconds(), model, include_usage }
    }

    fn object(&self, of_stream: bool, choices: Value) -> Value {
        let object = match (self.kind, of_stream) {
            (Kind::Chat, false) => "chat.completion",
            (Kind::Chat, true) => "chat.completion.chunk",
            (Kind::Text, _) => "text_completion",
        };
        let mut value = json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": concat!("terrace-", env!("CARGO_PKG_VERSION")),
            "choices": choices,
        });
        // If usage is requested, all chunks except the last have a null `usage`.
        if of_stream && self.include_usage {
            value["usage"] = Value::Null;
        }
        value
    }

    fn chunk(&self, delta: Value, text: &str, finish: Option<&str>) -> Value {
        let mut choice = json!({"index": 0, "logprobs": null, "finish_reason": finish});
        match self.kind {
            Kind::Chat => choice["delta"] = delta,
            Kind::Text => choice["text"] = text.into(),
        }
        self.object(true, json!([choice]))
    }
}

impl Form for Completion {
    fn whole(&mut self, text: String, answer: &Answer) -> Value {
        let mut choice = json!({"index": 0, "logprobs": null, "finish_reason": finish_reason(answer.stop)});
        match self.kind {
            Kind::Chat => choice["message"] = json!({"role": "assistant", "content": text}),
            Kind::Text => choice["text"] = text.into(),
        }
        let mut value = self.object(false, json!([choice]));
        value["usage"] = usage(answer);
        value["terrace"] = facts(answer);
        value
    }

    fn begin(&mut self) -> Vec<Value> {
        match self.kind {
            Kind::Chat => vec![self.chunk(json!({"role": "assistant", "content": ""}), "", None)],
            Kind::Text => Vec::new(),
        }
    }

    fn piece(&mut self, text: String) -> Value {
        self.chunk(json!({"content": text}), &text, None)
    }

    fn end(&mut self, answer: &Answer) -> Vec<Value> {
        let mut last = self.chunk(json!({}), "", Some(finish_reason(answer.stop)));
        last["terrace"] = facts(answer);
        let mut values = vec![last];
        if self.include_usage {
            let mut counted = self.object(true, json!([]));
            counted["usage"] = usage(answer);
            values.push(counted);
        }
        values
    }

    fn framing(&self) -> Framing {
        Framing::Events { done: true }
    }
}

/// The reason in OpenAI's terms: "length" for every answer that was cut off, for whatever reason.
const fn finish_reason(stop: StopReason) -> &'static str {
    match stop {
        StopReason::EndOfText | StopReason::StopString => "stop",
        StopReason::Length | StopReason::ContextFull | StopReason::Cancelled => "length",
    }
}

fn usage(answer: &Answer) -> Value {
    let (prompt, completion) = (answer.prompt_tokens, answer.tokens.len());
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": answer.reused},
    })
}
