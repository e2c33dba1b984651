//! OpenAI's batches: files of requests that are answered behind those of clients who wait.

use super::files::{found, not_written, page, shelf};
use crate::app::{App, LoadedModel};
use crate::batch::{BatchObject, Status, is_endpoint};
use crate::error::ApiError;
use crate::request::body::Body;
use crate::request::off_thread;
use crate::response::json;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use serde_json::Value;
use std::sync::Arc;

/// Most batches of a page.
const MAX_PAGE: usize = 100;

/// `POST /v1/batches`.
///
/// # Errors
/// There is no such file, or a field is wrong.
pub async fn create(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
    let shelf = shelf(&app)?;
    let mut fields = body.fields()?;
    let input = fields.required_text("input_file_id")?;
    let endpoint = fields.required_text("endpoint")?;
    let window = fields.required_text("completion_window")?;
    let metadata = match fields.take("metadata") {
        None | Some(Value::Null) => None,
        Some(Value::Object(metadata)) => Some(metadata),
        Some(_) => return Err(ApiError::field("metadata", "`metadata` must be an object")),
    };
    // Files stay until they are deleted.
    fields.take("output_expires_after");
    fields.finish()?;
    if !is_endpoint(&endpoint) {
        let message = format!("a batch cannot call {endpoint}");
        return Err(ApiError::field("endpoint", message));
    }
    found(&shelf, &input)?;
    let batch = BatchObject::new(endpoint, ready.name.clone(), input, window, metadata);
    let kept = batch.clone();
    off_thread(move || shelf.add_batch(kept).map_err(not_written)).await?;
    Ok(json(&batch))
}

/// `GET /v1/batches`.
///
/// # Errors
/// A parameter is wrong.
pub async fn list(State(app): State<Arc<App>>, RawQuery(parameters): RawQuery) -> Result<Response, ApiError> {
    page(shelf(&app)?.batches(), |batch| &batch.id, parameters.as_deref(), MAX_PAGE)
}

/// `GET /v1/batches/{id}`.
///
/// # Errors
/// There is no such batch.
pub async fn batch(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let batch = shelf(&app)?.batch(&id);
    Ok(json(&batch.ok_or_else(|| ApiError::no_object("batch", &id))?))
}

/// `POST /v1/batches/{id}/cancel`: what has been answered is written, and nothing more begins.
///
/// # Errors
/// There is no such batch, or it has ended.
pub async fn cancel(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    let shelf = shelf(&app)?;
    let named = id.clone();
    let batch = off_thread(move || {
        let cancel = |batch: &mut BatchObject| {
            if matches!(batch.status, Status::Validating | Status::InProgress) {
                batch.enter(Status::Cancelling);
            }
        };
        shelf.change_batch(&named, cancel).map_err(not_written)
    })
    .await?;
    let batch = batch.ok_or_else(|| ApiError::no_object("batch", &id))?;
    match batch.status {
        Status::Cancelling => Ok(json(&batch)),
        _ => Err(ApiError::in_use(&format!("the batch `{id}` has ended, or is about to"))),
    }
}
