//! OpenAI's responses. Nothing is kept between requests: clients send the whole conversation.

mod form;
mod given;
mod items;
mod tools;
mod turns;

use crate::answer::respond;
use crate::app::{App, LoadedModel, Ready};
use crate::error::ApiError;
use crate::request::answer_settings::AnswerSettings;
use crate::request::body::{Body, Fields};
use crate::request::chat::Chat;
use crate::request::question::Question;
use crate::request::{off_thread, prompt, sampling, slot};
use crate::response::json;
use axum::extract::State;
use axum::response::Response as HttpResponse;
use form::Response;
use serde_json::{Value, json as object};
use std::sync::Arc;
use tools::Names;

/// `POST /v1/responses`.
///
/// # Errors
/// The request cannot be answered.
pub async fn responses(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<HttpResponse, ApiError> {
    let (request, questions) = {
        let (app, ready) = (Arc::clone(&app), Arc::clone(&ready));
        off_thread(move || Request::parse(&body, &app, &ready)?.questions(&ready)).await?
    };
    let form = Response::new(request.object, request.names, request.gives_thoughts)
        .telling_progress(request.tells_progress);
    respond(&app, &ready, questions, request.stream, form).await
}

/// `POST /v1/responses/input_tokens`.
///
/// # Errors
/// The request is not one for an answer.
pub async fn input_tokens(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<HttpResponse, ApiError> {
    let counted = off_thread(move || {
        let rendered = Request::parse(&body, &app, &ready)?.chat.write(&ready)?;
        let tokens = prompt::chat_tokens(&rendered, &ready)?.len();
        Ok(json(&object!({"object": "response.input_tokens", "input_tokens": tokens})))
    });
    counted.await
}

/// A parsed request.
struct Request {
    wanted: AnswerSettings,
    chat: Chat,
    stream: bool,
    /// The response before there is anything in it.
    object: Value,
    names: Names,
    gives_thoughts: bool,
    tells_progress: bool,
}

impl Request {
    fn parse(body: &Body, app: &App, ready: &Ready) -> Result<Self, ApiError> {
        let mut fields = body.fields()?;
        let mut wanted = AnswerSettings::read(&mut fields, app, ready, &["max_output_tokens"])?;
        wanted.reuse = fields.flag("cache_prompt")?.unwrap_or(true);
        wanted.slot = slot::slot(&mut fields, ready)?;
        let top = fields.integer("top_logprobs", 0..=sampling::MOST_PROBS)?.unwrap_or(0);
        let include = given::include(&mut fields)?;
        let includes = |name: &str| include.iter().any(|one| one == name);
        if top > 0 || includes("message.output_text.logprobs") {
            wanted.probs = usize::try_from(top).ok();
        }
        let stream = fields.flag("stream")?.unwrap_or(false);
        let tells_progress = fields.flag("return_progress")?.unwrap_or(false);
        if let Some(options) = fields.take("stream_options") {
            let mut options = Fields::within("stream_options", options)?;
            options.flag("include_obfuscation")?;
            options.finish()?;
        }
        let mut object = given::object(&mut fields, &ready.name, &wanted)?;
        let (chat, names) = given::chat(&mut fields, &mut object)?;
        fields.finish()?;
        let gives_thoughts = includes("reasoning.encrypted_content");
        Ok(Self { wanted, chat, stream, object, names, gives_thoughts, tells_progress })
    }

    /// The request with its questions for the engine.
    fn questions(self, ready: &Ready) -> Result<(Self, Vec<Question>), ApiError> {
        let questions = self.wanted.clone().chat(self.chat.write(ready)?, ready)?;
        Ok((self, questions))
    }
}
