//! Adapters (LoRA), as llama-server's clients list and scale them.

use crate::app::LoadedModel;
use crate::error::ApiError;
use crate::request::body::Body;
use crate::request::lora::scales;
use crate::response::json;
use axum::response::Response;
use serde_json::{Value, json as object};

/// `GET /lora-adapters`.
pub async fn adapters(LoadedModel(ready): LoadedModel) -> Response {
    let now = ready.scales();
    let shown = ready.facts.adapters.iter().enumerate().map(|(id, facts)| {
        object!({
            "id": id,
            "path": facts.path.to_string_lossy(),
            "scale": now.of(id),
            "task_name": facts.task,
            "prompt_prefix": facts.prompt_prefix,
        })
    });
    json(&shown.collect::<Vec<Value>>())
}

/// `POST /lora-adapters`: the scales for requests that name no adapters. What is not in the list is not
/// added.
///
/// # Errors
/// It names an adapter that there is not.
pub async fn scale(LoadedModel(ready): LoadedModel, body: Body) -> Result<Response, ApiError> {
    ready.set_scales(scales("", body.list()?, ready.facts.adapters.len())?);
    Ok(json(&object!({"success": true})))
}
