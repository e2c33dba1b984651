//! Ollama's completions, of prompts and of conversations.

use super::form::{Kind, Ollama};
use crate::advice::Reason;
use crate::answer::respond;
use crate::app::{App, LoadedModel, Ready};
use crate::error::ApiError;
use crate::exchange::Exchange;
use crate::request::answer_settings::AnswerSettings;
use crate::request::body::{Body, Fields, wrong};
use crate::request::chat::Chat;
use crate::request::constraint::{Constraint, schema_text};
use crate::request::keep_alive::{Keep, keep_of};
use crate::request::pictures::Pictures;
use crate::request::question::Question;
use crate::request::turns::{Turns, images, tools, turns};
use crate::request::{off_thread, prompt};
use crate::response::json;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json as object};
use std::sync::Arc;
use std::time::Instant;

/// `POST /api/generate`.
///
/// # Errors
/// The request cannot be answered.
pub async fn generate(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
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
) -> Result<Response, ApiError> {
    answer(Kind::Chat, &app, &ready, body).await
}

async fn answer(kind: Kind, app: &Arc<App>, ready: &Arc<Ready>, body: Body) -> Result<Response, ApiError> {
    let begin = Instant::now();
    let request = {
        let (app, ready) = (Arc::clone(app), Arc::clone(ready));
        off_thread(move || parse(kind, &body, &app, &ready)).await?
    };
    let form = Ollama { kind, model: ready.name.clone(), begin };
    if request.questions.is_empty() {
        // Ollama's clients load a model by a request without a prompt, or unload it.
        if request.keep == Some(Keep::NOT) {
            let refused = ApiError::unsupported("keep_alive", "this server keeps its model loaded");
            return Err(refused.with(ready.advise(Reason::StaysLoaded)));
        }
        let mut value = form.object(String::new(), true);
        value["done_reason"] = "load".into();
        return Ok(json(&value));
    }
    respond(app, ready, request.questions, request.stream, form).await
}

struct Request {
    questions: Vec<Question>,
    stream: bool,
    keep: Option<Keep>,
}

fn parse(kind: Kind, body: &Body, app: &App, ready: &Ready) -> Result<Request, ApiError> {
    let mut fields = body.fields()?;
    let stream = fields.flag("stream")?.unwrap_or(true);
    let keep = fields.take("keep_alive").as_ref().map(keep_of).transpose()?;
    let options = fields.take("options").unwrap_or_else(|| object!({}));
    let wanted = options_of(Fields::within("options", options)?, app, ready)?;
    let constraint = Constraint { schema: format(&mut fields)?, ..Constraint::default() };
    let questions = match kind {
        Kind::Chat => conversation(fields, constraint, wanted, ready)?,
        Kind::Generate => single(fields, constraint, wanted, ready)?,
    };
    Ok(Request { questions, stream, keep })
}

fn options_of(mut options: Fields, app: &App, ready: &Ready) -> Result<AnswerSettings, ApiError> {
    let wanted = AnswerSettings::read(&mut options, app, ready, &["num_predict"])?;
    let context = i64::try_from(ready.facts.context).unwrap_or(i64::MAX);
    // Some clients send the same number to all servers. A prompt that does not fit is an error.
    if let Some(wanted) =
        options.integer("num_ctx", 1..=i64::from(u32::MAX))?.filter(|&wanted| wanted > context)
        && let Some(exchange) = Exchange::here()
    {
        exchange
            .adjusted(format!("`options.num_ctx` is {context}, the server's context, instead of {wanted}"));
    }
    options.finish()?;
    Ok(wanted)
}

/// The schema of answers: `json` for any object, or a JSON schema.
fn format(fields: &mut Fields) -> Result<String, ApiError> {
    match fields.take("format") {
        None => Ok(String::new()),
        Some(Value::String(text)) if text.is_empty() => Ok(text),
        Some(Value::String(text)) if text == "json" => Ok(object!({"type": "object"}).to_string()),
        Some(schema) => schema_text("format", schema),
    }
}

fn conversation(
    mut fields: Fields,
    constraint: Constraint,
    wanted: AnswerSettings,
    ready: &Ready,
) -> Result<Vec<Question>, ApiError> {
    let messages = fields.required("messages")?;
    if messages.as_array().is_some_and(Vec::is_empty) {
        fields.finish()?;
        return Ok(Vec::new());
    }
    let mut chat = Chat::of(turns(messages)?);
    if let Some(given) = fields.take("tools") {
        chat.conversation.tools = tools(given)?;
    }
    ask(chat, fields, constraint, wanted, ready)
}

/// A single prompt, as a conversation of its own; as plain text if `raw` is set or the model has no
/// chat template.
fn single(
    mut fields: Fields,
    constraint: Constraint,
    mut wanted: AnswerSettings,
    ready: &Ready,
) -> Result<Vec<Question>, ApiError> {
    let text = fields.text("prompt")?.unwrap_or_default();
    let system = fields.text("system")?.filter(|system| !system.is_empty());
    let raw = fields.flag("raw")?.unwrap_or(false);
    let mut pictures = Pictures::default();
    let text = images(&mut fields, &mut pictures)? + &text;
    if text.is_empty() {
        fields.finish()?;
        return Ok(Vec::new());
    }
    if raw || ready.facts.chat_template.is_none() {
        if system.is_some() {
            return Err(ApiError::field(
                "system",
                "a system message needs a chat template, but the request is raw or the model has none",
            ));
        }
        fields.finish()?;
        wanted.sampling.keep_within(constraint.grammar(ready)?);
        return wanted.questions(&[prompt::text_with(&text, &pictures, ready)?], ready);
    }
    let turn = |role: &str, text: String| object!({"role": role, "content": text});
    let turns = system.map(|system| turn("system", system)).into_iter().chain([turn("user", text)]);
    ask(Chat::of(Turns { messages: turns.collect(), pictures }), fields, constraint, wanted, ready)
}

fn ask(
    mut chat: Chat,
    mut fields: Fields,
    constraint: Constraint,
    wanted: AnswerSettings,
    ready: &Ready,
) -> Result<Vec<Question>, ApiError> {
    match fields.take("think") {
        None => {}
        Some(Value::Bool(think)) => chat.thinks = Some(think),
        Some(Value::String(effort)) => chat.variable("reasoning_effort", &effort.into()),
        Some(other) => return Err(wrong("think", &other, "a boolean, or low, medium or high")),
    }
    chat.constrain(constraint)?;
    fields.finish()?;
    wanted.chat(chat.write(ready)?, ready)
}
