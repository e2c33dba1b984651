//! Adapters (LoRA), as llama-server's clients ask for them. The server loads none.

use crate::app::LoadedModel;
use crate::error::ApiError;
use crate::request::body::{Body, Fields};
use crate::response::json;
use axum::response::Response;
use serde_json::json as object;

/// `GET /lora-adapters`.
pub async fn adapters(_: LoadedModel) -> Response {
    json(&object!([]))
}

/// `POST /lora-adapters`. An empty list, which scales nothing, is fine.
///
/// # Errors
/// It names an adapter.
pub async fn scale(_: LoadedModel, body: Body) -> Result<Response, ApiError> {
    if let Some(adapter) = body.list()?.into_iter().next() {
        let mut adapter = Fields::within("[0]", adapter)?;
        let place = adapter.place("id");
        let id = adapter.integer("id", 0..=i64::from(i32::MAX))?;
        let id = id.ok_or_else(|| ApiError::missing(&place))?;
        adapter.number("scale", -1e6..=1e6)?;
        adapter.finish()?;
        return Err(ApiError::field(place, format!("there is no adapter {id}: this server loads none")));
    }
    Ok(json(&object!({"success": true})))
}
