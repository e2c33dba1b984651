//! The memory that a model's weights stream through.

use crate::app::LoadedModel;
use crate::error::ApiError;
use crate::request::body::Body;
use crate::response::json;
use axum::response::Response;
use serde_json::{Value, json as object};
use std::time::Duration;
use terrace_engine::SlotsMemory;
use terrace_model::ByteSize;
use tokio::task::spawn_blocking;

/// How long a change waits for memory that a running graph uses.
const PATIENCE: Duration = Duration::from_secs(10);

/// `GET /v1/memory`: the slots of streamed weights; null if nothing streams.
///
/// # Errors
/// The server is shutting down.
pub async fn memory(LoadedModel(ready): LoadedModel) -> Result<Response, ApiError> {
    let slots = ready.ask(|serving| serving.slots_limit().map(terrace_engine::SlotsLimit::memory))?;
    Ok(json(&shown(slots)))
}

/// `POST /v1/memory`: limits the slots to `slots` bytes, between their least and what they were opened
/// with. What they hold beyond that is given back to the system.
///
/// # Errors
/// A field is not valid; nothing streams; the server is shutting down.
pub async fn set_memory(LoadedModel(ready): LoadedModel, body: Body) -> Result<Response, ApiError> {
    let mut fields = body.fields()?;
    // Where there are several, it has led here.
    fields.text("model")?;
    let bytes = fields.integer("slots", 0..=i64::MAX)?;
    fields.finish()?;
    let bytes = bytes.ok_or_else(|| ApiError::field("slots", "`slots` is missing: bytes for the slots"))?;
    let limit = ready.ask(|serving| serving.slots_limit().cloned())?;
    let limit =
        limit.ok_or_else(|| ApiError::field("slots", "nothing of this model streams: it has no slots"))?;
    let set = spawn_blocking(move || limit.set(ByteSize(bytes.unsigned_abs()), PATIENCE)).await;
    Ok(json(&shown(Some(set.map_err(|_| ApiError::internal("internal error"))?))))
}

fn shown(slots: Option<SlotsMemory>) -> Value {
    let slots = slots.map(|SlotsMemory { least, most, limit, held }| {
        object!({
            "least": least.bytes(),
            "most": most.bytes(),
            "limit": limit.bytes(),
            "held": held.bytes(),
        })
    });
    object!({"slots": slots})
}
