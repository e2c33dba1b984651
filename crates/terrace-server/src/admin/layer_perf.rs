//! The uses of experts, as the hot cache of adrianhoehne/llama.cpp reports them.

use super::query;
use crate::app::{LoadedModel, Ready};
use crate::error::ApiError;
use crate::request::body::{Body, wrong};
use crate::request::off_thread;
use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use terrace_model::learn::Reported;
use terrace_serving::Serving;

/// `GET /moe-layer-perf`: a learn file of the uses since the start of the window.
///
/// # Errors
/// No such model is served, or the server is shutting down.
pub async fn layer_perf(LoadedModel(ready): LoadedModel, uri: Uri) -> Result<Response, ApiError> {
    query::of_model(uri.query(), &ready)?;
    report(ready).await
}

/// `POST /moe-layer-perf`: sets what is reported (`mode`), starts a new window, and returns its
/// learn file.
///
/// # Errors
/// There is no such mode, no such model is served, or the server is shutting down.
pub async fn set_layer_perf(
    LoadedModel(ready): LoadedModel,
    uri: Uri,
    body: Body,
) -> Result<Response, ApiError> {
    query::of_model(uri.query(), &ready)?;
    let mut fields = body.fields()?;
    let mode = fields.required("mode")?;
    let name = mode.as_str().ok_or_else(|| wrong("mode", &mode, "a string"))?;
    let mode: Reported =
        name.parse().map_err(|error| ApiError::field("mode", format!("`mode` is `{name}`: {error}")))?;
    if let Some(name) = fields.text("model")?.filter(|name| *name != ready.name) {
        return Err(ApiError::no_model(&name));
    }
    fields.finish()?;
    ready.ask(|serving| serving.report(mode))?;
    report(ready).await
}

async fn report(ready: Arc<Ready>) -> Result<Response, ApiError> {
    // Of a large model, the text has some megabytes.
    let text = off_thread(move || Ok(ready.ask(Serving::reported)?.to_text())).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}
