//! Anthropic's messages, as far as its clients need them of a local model.

mod error;
mod form;
mod turns;

pub use error::error_object;

use crate::answer::respond;
use crate::app::{App, LoadedModel, Ready};
use crate::error::ApiError;
use crate::request::answer_settings::AnswerSettings;
use crate::request::body::{Body, Fields};
use crate::request::chat::Chat;
use crate::request::constraint::{Constraint, schema_text};
use crate::request::question::Question;
use crate::request::{off_thread, prompt};
use crate::response::json;
use axum::extract::State;
use axum::response::Response;
use form::Message;
use serde_json::{Value, json as object};
use std::sync::Arc;

/// `POST /v1/messages`.
///
/// # Errors
/// The request cannot be answered.
pub async fn messages(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
    let (stream, questions) = {
        let (app, ready) = (Arc::clone(&app), Arc::clone(&ready));
        off_thread(move || {
            let request = Request::parse(&body, &app, &ready)?;
            Ok((request.stream, request.questions(&ready)?))
        })
        .await?
    };
    let form = Message::new(ready.name.clone());
    respond(&app, &ready, questions, stream, form).await
}

/// `POST /v1/messages/count_tokens`.
///
/// # Errors
/// The request is not one for an answer.
pub async fn count_tokens(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
    off_thread(move || {
        // Clients send the request whose answer they would ask for.
        let rendered = Request::parse(&body, &app, &ready)?.chat.write(&ready)?;
        Ok(json(&object!({"input_tokens": prompt::chat_tokens(&rendered, &ready)?.len()})))
    })
    .await
}

/// A parsed request.
struct Request {
    wanted: AnswerSettings,
    chat: Chat,
    stream: bool,
}

impl Request {
    fn parse(body: &Body, app: &App, ready: &Ready) -> Result<Self, ApiError> {
        let mut fields = body.fields()?;
        let wanted = AnswerSettings::read(&mut fields, app, ready, &["max_tokens"])?;
        let stream = fields.flag("stream")?.unwrap_or(false);
        let chat = chat(&mut fields)?;
        fields.finish()?;
        Ok(Self { wanted, chat, stream })
    }

    /// The request's questions for the engine.
    fn questions(self, ready: &Ready) -> Result<Vec<Question>, ApiError> {
        self.wanted.chat(self.chat.write(ready)?, ready)
    }
}

/// The conversation, with its tools.
fn chat(fields: &mut Fields) -> Result<Chat, ApiError> {
    let system = fields.take("system").map(turns::system).transpose()?;
    let messages = fields.required("messages")?;
    let mut chat = Chat::of(turns::turns(system, messages)?);
    let goes_on = chat.conversation.messages.last().is_some_and(|last| last["role"] == "assistant");
    chat.conversation.continue_final_message = goes_on;
    if let Some(tools) = fields.take("tools") {
        chat.conversation.tools = turns::tools(tools)?;
    }
    if let Some(choice) = fields.take("tool_choice") {
        choose(&mut chat, Fields::within("tool_choice", choice)?)?;
    }
    chat.think(fields)?;
    let mut constraint = Constraint::read(fields)?;
    if let Some(output) = fields.take("output_config") {
        output_of(&mut chat, &mut constraint, Fields::within("output_config", output)?)?;
    }
    chat.constrain(constraint)?;
    for name in OF_SERVICES {
        fields.take(name);
    }
    Ok(chat)
}

/// Tools of Anthropic's own models and services: no response here depends on them.
const OF_SERVICES: [&str; 10] = [
    "betas",
    "cache_control",
    "container",
    "context_management",
    "diagnostics",
    "inference_geo",
    "mcp_servers",
    "speed",
    "user_profile_id",
    "workspace_id",
];

/// Reads what the answer may be, and how much the model should think.
fn output_of(chat: &mut Chat, constraint: &mut Constraint, mut output: Fields) -> Result<(), ApiError> {
    if let Some(effort) = output.text("effort")? {
        chat.variable("reasoning_effort", &effort.into());
    }
    if let Some(format) = output.take("format") {
        let mut format = Fields::within("output_config.format", format)?;
        let kind = format.text("type")?.unwrap_or_default();
        if kind != "json_schema" {
            let message = format!("`output_config.format.type` is `{kind}`, but must be json_schema");
            return Err(ApiError::unsupported("output_config.format.type", message));
        }
        let place = format.place("schema");
        constraint.schema = schema_text(&place, format.required("schema")?)?;
        format.finish()?;
    }
    output.take("task_budget");
    output.finish()
}

fn choose(chat: &mut Chat, mut choice: Fields) -> Result<(), ApiError> {
    let kind = choice.text("type")?.unwrap_or_default();
    let parallel = choice.flag("disable_parallel_tool_use")?.unwrap_or(false);
    chat.conversation.parallel_tool_calls = !parallel;
    let name = choice.text("name")?;
    choice.finish()?;
    let wanted: Value = match (kind.as_str(), name) {
        ("auto", _) => "auto".into(),
        ("none", _) => "none".into(),
        ("any", _) => "required".into(),
        ("tool", Some(name)) => object!({"name": name}),
        ("tool", None) => {
            return Err(ApiError::missing("tool_choice.name"));
        }
        (other, _) => {
            let message = format!("`tool_choice.type` is `{other}`, but must be auto, any, tool or none");
            return Err(ApiError::field("tool_choice.type", message));
        }
    };
    chat.choose("tool_choice", wanted)
}
