//! The server's reports about itself: models, properties, server slots.

use super::query;
use crate::api::settings::settings;
use crate::app::{App, LoadedModel, Ready};
use crate::capabilities;
use crate::error::ApiError;
use crate::request::answer_settings::AnswerSettings;
use crate::request::off_thread;
use crate::request::pictures::MARKER;
use crate::response::json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use serde_json::{Value, json as object};
use std::sync::Arc;
use terrace_engine::prompt_cache::PromptCacheStatus;
use terrace_engine::{ChatTemplate, LossyUsed};
use terrace_serving::SlotState;

/// `GET /v1/models`.
///
/// # Errors
/// The server is shutting down.
pub async fn models(LoadedModel(ready): LoadedModel) -> Result<Response, ApiError> {
    off_thread(move || Ok(json(&object!({"object": "list", "data": [model_object(&ready)]})))).await
}

/// `GET /v1/models/{name}`.
///
/// # Errors
/// It is another model's name, or not UTF-8.
pub async fn model(
    LoadedModel(ready): LoadedModel,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path(name) = name.map_err(|error| ApiError::request(error.body_text()))?;
    match name == ready.name {
        true => off_thread(move || Ok(json(&model_object(&ready)))).await,
        false => Err(ApiError::no_model(&name)),
    }
}

/// Waits for the chat template.
fn model_object(ready: &Ready) -> Value {
    let mut model = object!({
        "id": ready.name,
        "object": "model",
        "created": ready.created,
        "owned_by": "terrace",
        "capabilities": capabilities(ready),
        "meta": {
            "n_vocab": ready.facts.vocabulary,
            "n_ctx": ready.facts.context,
            "n_ctx_train": ready.facts.trained_context,
        },
    });
    if let Some(lossy) = LossyUsed::of(&ready.facts.plan) {
        model["meta"]["lossy"] = serde_json::to_value(lossy).expect("names and texts");
    }
    model
}

/// As Ollama names them, and llama-server's name of what sees. Waits for the chat template.
fn capabilities(ready: &Ready) -> Vec<&'static str> {
    let mut all = capabilities::of_model(ready);
    if all.contains(&"vision") {
        all.push("multimodal");
    }
    all
}

/// `GET /props`.
///
/// # Errors
/// The server is shutting down.
pub async fn props(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
) -> Result<Response, ApiError> {
    let facts = &ready.facts;
    Ok(json(&object!({
        "default_generation_settings": {
            "n_ctx": facts.context,
            "params": settings(&AnswerSettings::of(&app, &ready), false, &ready),
        },
        "total_slots": facts.slots,
        "model_alias": ready.name,
        "model_path": facts.file,
        "is_sleeping": false,
        "chat_template": facts.chat_template.as_deref().unwrap_or_default(),
        "chat_template_caps": ready.template_of_chats().map(ChatTemplate::caps),
        "bos_token": facts.special_tokens.bos.as_deref().unwrap_or_default(),
        "eos_token": facts.special_tokens.eos.as_deref().unwrap_or_default(),
        "modalities": {"vision": facts.sees(), "audio": false},
        "media_marker": MARKER,
        "build_info": concat!("terrace ", env!("CARGO_PKG_VERSION")),
        "terrace": {
            "epoch": ready.status()?.epoch,
            "plan": facts.plan,
            "lossy": LossyUsed::of(&facts.plan),
            "load_ms": facts.load_ms,
            "hotswap": app.hotswap,
            "embedding": facts.embedding.as_ref().map(|embedding| object!({
                "pooling": embedding.pooling.name(),
                "dimensions": embedding.width,
                "n_ctx": embedding.most,
            })),
            "prompt_cache": prompt_cache(&ready.status()?.prompt_cache),
        },
    })))
}

/// Storage and number of kept conversations.
fn prompt_cache(status: &PromptCacheStatus) -> Value {
    let mut shown = object!({
        "ram_bytes": status.bytes,
        "ram_limit": status.limit,
        "conversations": status.conversations,
    });
    if status.disk_limit > 0 {
        shown["disk_bytes"] = status.disk_bytes.into();
        shown["disk_limit"] = status.disk_limit.into();
        shown["disk_conversations"] = status.disk_conversations.into();
    }
    shown
}

/// `GET /slots`.
///
/// # Errors
/// The server is shutting down, or all slots are in use and the request says that this is an error.
pub async fn slots(LoadedModel(ready): LoadedModel, RawQuery(query): RawQuery) -> Result<Response, ApiError> {
    let status = ready.status()?;
    let all_busy = status.slots.iter().all(|slot| slot.state != SlotState::Idle);
    if all_busy && query::value(query.as_deref(), "fail_on_no_slot").is_some_and(|value| value == b"1") {
        return Err(ApiError::no_slot());
    }
    let slots: Vec<Value> = status
        .slots
        .iter()
        .enumerate()
        .map(|(id, slot)| {
            object!({
                "id": id,
                "n_ctx": ready.facts.context,
                "is_processing": slot.state != SlotState::Idle,
                "state": match slot.state {
                    SlotState::Idle => "idle",
                    SlotState::Prefill => "prefill",
                    SlotState::Decode => "decode",
                },
                "held_tokens": slot.held,
                "prompt_tokens": slot.prompt,
                "generated_tokens": slot.generated,
                "epoch": slot.epoch,
            })
        })
        .collect();
    Ok(json(&slots))
}
