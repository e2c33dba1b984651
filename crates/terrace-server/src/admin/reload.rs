//! Reloads of tensors that have changed.

use super::query;
use crate::advice::Reason;
use crate::app::{LoadedModel, Ready};
use crate::error::ApiError;
use crate::response::{EPOCH, json};
use axum::extract::RawQuery;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json as object};
use terrace_engine::{ReloadError, ReloadOutcome, Take};
use tokio::sync::oneshot;

/// `POST /v1/tensors/reload`: reloads tensors that changed in the model's files, and reports the
/// outcome. With `partial=true`, those that can be replaced.
///
/// # Errors
/// The server is shutting down, or `partial` is neither `true` nor `false`.
pub async fn tensors_reload(
    LoadedModel(ready): LoadedModel,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let partial = query::value(query.as_deref(), "partial");
    let take = match partial.as_deref() {
        None | Some(b"false") => Take::All,
        Some(b"true") => Take::Acceptable,
        Some(_) => return Err(ApiError::request("`partial` must be true or false")),
    };
    let outcome = reload(&ready, take).await?;
    let body = describe(&outcome);
    let mut response = match outcome {
        Ok(_) => json(&body),
        Err(error) => {
            // The error object, extended by the refusals.
            let advice = ready.advise(Reason::Reload(&error));
            let error = ApiError::from(&*error).with(advice);
            let mut both = error.body();
            both["refused"] = body["refused"].clone();
            (StatusCode::CONFLICT, json(&both)).into_response()
        }
    };
    response.headers_mut().insert(EPOCH, HeaderValue::from(ready.status()?.epoch));
    Ok(response)
}

/// Lets the worker reload changed tensors.
///
/// # Errors
/// The server is shutting down, or too many clients wait for a reload.
pub async fn reload(ready: &Ready, take: Take) -> Result<ReloadOutcome, ApiError> {
    let (send, outcome) = oneshot::channel();
    ready.ask(|serving| {
        let done = Box::new(move |outcome| {
            // The client may have disconnected.
            let _ = send.send(outcome);
        });
        serving.reload_taking(take, done)
    })??;
    outcome.await.map_err(|_| ApiError::stopping())
}

/// The outcome of a reload as JSON.
pub fn describe(outcome: &ReloadOutcome) -> Value {
    match outcome {
        Ok(report) => serde_json::to_value(report).expect("plain data"),
        Err(error) => {
            let refused = match &**error {
                ReloadError::Refused(refusals) => object!(refusals),
                _ => object!([]),
            };
            object!({"error": error.to_string(), "refused": refused})
        }
    }
}
