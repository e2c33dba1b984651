//! Readiness of the server.

use super::reload::{describe, reload};
use crate::actions::{Action, Rights};
use crate::app::App;
use crate::error::ApiError;
use crate::response::{EPOCH, json};
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json as object;
use std::sync::Arc;
use terrace_engine::Take;
use terrace_serving::SlotState;

/// `GET /health`. Changes nothing, unless `LLAMA_HOTSWAP_ENABLED` is set and the request has a key
/// for changes, where one is required.
pub async fn health(State(app): State<Arc<App>>, Extension(rights): Extension<Rights>) -> Response {
    let ready = match app.ready() {
        Ok(ready) => ready,
        Err(error) => return not_ready(&error),
    };
    let reloaded = match app.hotswap && rights.allow(Action::ReplaceTensors) {
        true => match reload(&ready, Take::All).await {
            Ok(outcome) => Some(describe(&outcome)),
            Err(error) => return error.into_response(),
        },
        false => None,
    };
    let status = match ready.status() {
        Ok(status) => status,
        Err(error) => return error.into_response(),
    };
    let idle = status.slots.iter().filter(|slot| slot.state == SlotState::Idle).count();
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

/// The answer while there is no model, or no longer one.
fn not_ready(error: &ApiError) -> Response {
    let loading = error.status == StatusCode::SERVICE_UNAVAILABLE;
    let mut body = error.body();
    body["status"] = if loading { "loading" } else { "lost" }.into();
    let mut response = (error.status, json(&body)).into_response();
    if loading {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
