//! Reloads of tensors that have changed.

use crate::advice::Reason;
use crate::app::{LoadedModel, Ready};
use crate::error::ApiError;
use crate::response::{EPOCH, json};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json as object};
use terrace_engine::{ReloadError, ReloadOutcome};
use tokio::sync::oneshot;

/// `POST /v1/tensors/reload`: reloads tensors that changed in the model's files, and reports the
/// outcome.
///
/// # Errors
/// The server is shutting down.
pub async fn tensors_reload(LoadedModel(ready): LoadedModel) -> Result<Response, ApiError> {
    let outcome = reload(&ready).await?;
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
pub async fn reload(ready: &Ready) -> Result<ReloadOutcome, ApiError> {
    let (send, outcome) = oneshot::channel();
    ready.ask(|serving| {
        serving.reload(Box::new(move |outcome| {
            // The client may have disconnected.
            let _ = send.send(outcome);
        }))
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
