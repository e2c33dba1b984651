//! OpenAI's completions, of conversations and of plain text.

pub(super) mod aligned;
mod completion;
pub(super) mod probs;

use crate::answer::respond;
use crate::app::{App, LoadedModel, Ready};
use crate::error::ApiError;
use crate::exchange::Exchange;
use crate::request::answer_settings::AnswerSettings;
use crate::request::body::{Body, Fields};
use crate::request::chat::Chat;
use crate::request::constraint::Constraint;
use crate::request::question::Question;
use crate::request::{off_thread, prompt, sampling, slot};
use crate::response::json;
use axum::extract::State;
use axum::response::Response;
use completion::{Completion, Kind, ResponseExtras};
use serde_json::json as object;
use std::sync::Arc;

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

/// `POST /v1/chat/completions/input_tokens`: the number of tokens of a conversation.
///
/// # Errors
/// The request is not one for an answer.
pub async fn input_tokens(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
    off_thread(move || {
        let request = Request::parse(Kind::Chat, &body, &app, &ready)?;
        let tokens = request.questions.first().map_or(0, |question| question.job.prompt.len());
        Ok(json(&object!({"input_tokens": tokens})))
    })
    .await
}

async fn complete(kind: Kind, app: &Arc<App>, ready: &Arc<Ready>, body: Body) -> Result<Response, ApiError> {
    let request = {
        let (app, ready) = (Arc::clone(app), Arc::clone(ready));
        off_thread(move || Request::parse(kind, &body, &app, &ready)).await?
    };
    let form = Completion::new(kind, ready.name.clone(), request.told, request.echo, request.per_prompt);
    respond(app, ready, request.questions, request.stream, form).await
}

/// A parsed request.
struct Request {
    questions: Vec<Question>,
    stream: bool,
    told: ResponseExtras,
    /// Texts of the prompts, one per answer, if answers begin with them and nothing else is told of them.
    echo: Vec<String>,
    /// Number of answers to each prompt.
    per_prompt: usize,
}

impl Request {
    fn parse(kind: Kind, body: &Body, app: &App, ready: &Ready) -> Result<Self, ApiError> {
        let mut fields = body.fields()?;
        // Before the prompt, which takes longest to check.
        let limits = ["max_completion_tokens", "max_tokens", "n_predict", "max_new_tokens"];
        let mut wanted = AnswerSettings::read(&mut fields, app, ready, &limits)?;
        // What is computed of a batch does not depend on what was asked before, unless that is asked for.
        let background = Exchange::here().is_some_and(|exchange| exchange.background);
        wanted.reuse = fields.flag("cache_prompt")?.unwrap_or(!background);
        wanted.read_answers(&mut fields, &["n"])?;
        wanted.probs = match kind {
            Kind::Chat => sampling::probs(&mut fields, Some("logprobs"), "top_logprobs")?,
            Kind::Text => sampling::text_probs(&mut fields)?,
        };
        let stream = fields.flag("stream")?.unwrap_or(false);
        wanted.slot = slot::slot(&mut fields, ready)?;
        let mut told = ResponseExtras {
            progress: fields.flag("return_progress")?.unwrap_or(false),
            ..ResponseExtras::default()
        };
        if let Some(options) = fields.take("stream_options") {
            let mut options = Fields::within("stream_options", options)?;
            told.usage = options.flag("include_usage")?.unwrap_or(false);
            told.running_usage = options.flag("continuous_usage_stats")?.unwrap_or(false) && told.usage;
            options.flag("include_obfuscation")?;
            wanted.tokens = told.running_usage;
            options.finish()?;
        }
        let (mut echo, per_prompt) = (Vec::new(), wanted.answers);
        let questions = match kind {
            Kind::Chat => {
                let chat = Chat::read(&mut fields)?;
                let verbose = fields.flag("verbose")?.unwrap_or(app.verbose);
                fields.finish()?;
                let rendered = chat.write(ready)?;
                told.verbose = verbose.then(|| rendered.written.prompt.clone());
                wanted.chat(rendered, ready)?
            }
            Kind::Text => {
                let constraint = Constraint::read(&mut fields)?;
                let echoes = fields.flag("echo")?.unwrap_or(false);
                wanted.scored = echoes && wanted.probs.is_some();
                let prompts = prompt::prompts(&mut fields, ready)?;
                fields.finish()?;
                wanted.check_scores(&prompts)?;
                wanted.sampling.keep_within(constraint.grammar(ready)?);
                let questions = wanted.questions(&prompts, ready)?;
                for prompt in &prompts {
                    if echoes && !wanted.scored {
                        let text = ready.ask(|serving| serving.detokenize(prompt))??;
                        let text = String::from_utf8_lossy(&text).into_owned();
                        echo.extend(std::iter::repeat_n(text, wanted.answers));
                    }
                }
                questions
            }
        };
        Ok(Self { questions, stream, told, echo, per_prompt })
    }
}
