//! Whether the server can be used; and reloads, which `/health` does where the variable of llama.cpp's patch asks for them.

use super::app::{App, LoadedModel, Ready};
use super::body::json;
use super::error::ApiError;
use super::respond::EPOCH;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json as object};
use std::sync::Arc;
use terrace_engine::{ReloadError, ReloadOutcome};
use tokio::sync::oneshot;

/// `GET /health`. It changes nothing, unless `LLAMA_HOTSWAP_ENABLED` is set, and whoever asks may ask for anything.
pub async fn health(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let Ok(ready) = app.ready() else {
        let error = ApiError::loading();
        let mut body = error.body();
        body["status"] = "loading".into();
        let mut response = (error.status, json(&body)).into_response();
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        return response;
    };
    let reloaded = match app.hotswap && app.keys.allow(&headers) {
        true => match reload(&ready).await {
            Ok(outcome) => Some(describe(&outcome)),
            Err(error) => return error.into_response(),
        },
        false => None,
    };
    let status = match ready.status() {
        Ok(status) => status,
        Err(error) => return error.into_response(),
    };
    let idle =
        status.slots.iter().filter(|slot| slot.state == terrace_engine::serving::SlotState::Idle).count();
    let mut body = object!({
        "status": "ok",
        "epoch": status.epoch,
        "slots_idle": idle,
        "slots_processing": status.slots.len() - idle,
        "waiting": status.waiting,
    });
    if let Some(reloaded) = reloaded {
        body["reload"] = reloaded;
    }
    let mut response = json(&body);
    response.headers_mut().insert(EPOCH, HeaderValue::from(status.epoch));
    response
}

/// `POST /v1/tensors/reload`: looks for tensors that have changed in the model's files, and says what came of it.
///
/// # Errors
/// The server ends.
pub async fn tensors_reload(LoadedModel(ready): LoadedModel) -> Result<Response, ApiError> {
    let outcome = reload(&ready).await?;
    let body = describe(&outcome);
    let mut response = match outcome {
        Ok(_) => json(&body),
        Err(error) => {
            // The error's object, and beside it what was refused.
            let error = ApiError::from(error);
            let mut both = error.body();
            both["refused"] = body["refused"].clone();
            (StatusCode::CONFLICT, json(&both)).into_response()
        }
    };
    response.headers_mut().insert(EPOCH, HeaderValue::from(ready.status()?.epoch));
    Ok(response)
}

async fn reload(ready: &Ready) -> Result<ReloadOutcome, ApiError> {
    let (send, outcome) = oneshot::channel();
    ready.ask(|serving| {
        serving.reload(Box::new(move |outcome| {
            // Who asked may be gone.
            let _ = send.send(outcome);
        }))
    })?;
    outcome.await.map_err(|_| ApiError::stopping())
}

/// What came of a reload.
fn describe(outcome: &ReloadOutcome) -> Value {
    match outcome {
        Ok(report) => serde_json::to_value(report).expect("plain data"),
        Err(error) => {
            let refused = match error {
                ReloadError::Refused(refusals) => object!(refusals),
                _ => object!([]),
            };
            object!({"error": error.to_string(), "refused": refused})
        }
    }
}
