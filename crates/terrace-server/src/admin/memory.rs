//! The memory that a model's weights stream through.

use crate::app::LoadedModel;
use crate::error::ApiError;
use crate::request::body::Body;
use crate::request::off_thread;
use crate::response::json;
use axum::response::Response;
use serde_json::json as object;
use std::time::Duration;
use terrace_engine::SlotsLimit;
use terrace_model::ByteSize;

/// Longest wait of a change for memory that a running graph uses.
const GRAPH_TIMEOUT: Duration = Duration::from_secs(10);

/// `GET /v1/memory`: the slots of streamed weights; null if nothing streams.
///
/// # Errors
/// The server is shutting down.
pub async fn memory(LoadedModel(ready): LoadedModel) -> Result<Response, ApiError> {
    let slots = ready.ask(|serving| serving.slots_limit().map(SlotsLimit::memory))?;
    Ok(json(&object!({"slots": slots})))
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
    let set = off_thread(move || Ok(limit.set(ByteSize(bytes.unsigned_abs()), GRAPH_TIMEOUT))).await?;
    Ok(json(&object!({"slots": set})))
}
