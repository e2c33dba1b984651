//! Loading and unloading where one model is served, in the form of llama.cpp's server for several.

use crate::app::{LoadedModel, Ready};
use crate::error::ApiError;
use crate::request::body::Body;
use crate::response::json;
use axum::response::Response;
use serde_json::json as object;

/// `POST /models/load`: the model is loaded already.
///
/// # Errors
/// Another model is wanted.
pub async fn load(LoadedModel(ready): LoadedModel, body: Body) -> Result<Response, ApiError> {
    check(&ready, &body)?;
    Ok(json(&object!({"success": true, "model": ready.name})))
}

/// `POST /models/unload`.
///
/// # Errors
/// The model stays loaded, or another one is meant.
pub async fn unload(LoadedModel(ready): LoadedModel, body: Body) -> Result<Response, ApiError> {
    check(&ready, &body)?;
    Err(ApiError::only_model(&ready.name))
}

/// Checks that a request means this model.
fn check(ready: &Ready, body: &Body) -> Result<(), ApiError> {
    let mut fields = body.fields()?;
    let name = fields.required_text("model")?;
    fields.finish()?;
    // Ollama's clients add the tag.
    let known = name == ready.name || name.strip_suffix(":latest") == Some(&*ready.name);
    if known { Ok(()) } else { Err(ApiError::no_model(&name)) }
}
