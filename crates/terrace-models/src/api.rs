//! Requests about all models: lists of them, loading and unloading, health and metrics.

use super::pool::{Lease, Phase, Pool, Seen};
use super::proxy::{Passed, pass_on};
use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::Method;
use axum::response::Response;
use chrono::Utc;
use serde::Deserialize;
use serde_json::{Value, json as object};
use std::sync::Arc;
use std::time::Duration;
use terrace_server::App;
use terrace_server::front::{
    self, Action, ApiError, Exchange, Exposition, FOR_EVER, Keep, Rights, json, keep_of, off_thread,
    pull_as_asked, query_value, read, show_file, time,
};

/// State that handlers share.
pub struct Front {
    pub app: Arc<App>,
    pub pool: Arc<Pool>,
}

/// Maximum size of a request's body: that of the longest prompt.
const MAX_BODY: usize = 16 << 20;

/// The fields of a request that concern the choice of a model.
#[derive(Default, Deserialize)]
struct Fields {
    #[serde(default)]
    model: Option<String>,
    /// Ollama's older name for it.
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    keep_alive: Option<Value>,
    #[serde(default)]
    prompt: Option<Value>,
    #[serde(default)]
    messages: Option<Value>,
}

impl Fields {
    /// Reads what is there. The model's process says what is wrong with a body.
    async fn of(body: Bytes) -> Result<Self, ApiError> {
        off_thread(move || Ok(serde_json::from_slice(&body).unwrap_or_default())).await
    }

    /// Returns true if it only asks for a model to be loaded or unloaded, as Ollama's clients do.
    fn is_empty(&self) -> bool {
        let none = |value: &Option<Value>| {
            value.as_ref().is_none_or(|value| match value {
                Value::String(text) => text.is_empty(),
                Value::Array(values) => values.is_empty(),
                value => value.is_null(),
            })
        };
        none(&self.prompt) && none(&self.messages)
    }
}

/// Passes a request on to the process of the model that it names in its body or, with GET, in its address. A
/// model of a body is loaded first if need be.
///
/// # Errors
/// There is no such model, or it cannot be loaded.
pub async fn pass(State(front): State<Arc<Front>>, request: Request) -> Result<Response, ApiError> {
    passed(&front, request).await
}

async fn passed(front: &Front, request: Request) -> Result<Response, ApiError> {
    let rights = request.extensions().get::<Rights>().copied();
    let rights = rights.unwrap_or_else(|| front.app.rights(request.headers()));
    let (method, uri, headers) = (request.method().clone(), request.uri().clone(), request.headers().clone());
    let of_address =
        query_value(uri.query(), "model").map(|name| String::from_utf8_lossy(&name).into_owned());
    if *request.method() == Method::GET {
        let name = front.pool.meant(of_address.as_deref())?;
        let lease = front.pool.watched(&name).ok_or_else(|| ApiError::not_loaded(&name))?;
        let body = Bytes::new();
        return pass_on(lease, Passed { method, uri, headers, body }).await;
    }
    let (body, _share) = read(request, &front.app, MAX_BODY).await?;
    let body = Bytes::from(body);
    let fields = Fields::of(body.clone()).await?;
    let named = fields.model.as_deref().or(fields.name.as_deref()).or(of_address.as_deref());
    let name = front.pool.meant(named)?;
    let keep = fields.keep_alive.as_ref().filter(|keep| !keep.is_null()).map(keep_of).transpose()?;
    let of_ollama = matches!(uri.path(), "/api/generate" | "/api/chat");
    if of_ollama && fields.is_empty() && keep == Some(Keep(Some(Duration::ZERO))) {
        rights.check(Action::UnloadModel)?;
        front.pool.unload(&name);
        return Ok(json(&object!({
            "model": name,
            "created_at": time(Utc::now()),
            "response": "",
            "done": true,
            "done_reason": "unload",
        })));
    }
    // Many clients send one with each request, and have their answer without it.
    let keep = keep.filter(|_| {
        let allowed = rights.allow(Action::KeepModel);
        if !allowed && let Some(exchange) = Exchange::here() {
            exchange.withheld("keep_alive");
        }
        allowed
    });
    let lease: Lease = front.pool.lease(&name, keep).await?;
    pass_on(lease, Passed { method, uri, headers, body }).await
}

/// `GET /props` of one model, which may be unloaded just now, as llama-server's while it sleeps.
///
/// # Errors
/// There is no such model, or of several it is not loaded.
pub async fn props(State(front): State<Arc<Front>>, request: Request) -> Result<Response, ApiError> {
    if front.pool.has_any_name() {
        let name = front.pool.meant(None)?;
        if front.pool.watched(&name).is_none() {
            return Ok(json(&object!({"model_alias": name, "is_sleeping": true})));
        }
    }
    passed(&front, request).await
}

/// `POST /api/show`. A model that is not loaded stays so: clients ask about all models that are listed.
///
/// # Errors
/// There is no such model, or its file cannot be read.
pub async fn show(State(front): State<Arc<Front>>, request: Request) -> Result<Response, ApiError> {
    let (method, uri, headers) = (request.method().clone(), request.uri().clone(), request.headers().clone());
    let (body, _share) = read(request, &front.app, MAX_BODY).await?;
    let body = Bytes::from(body);
    let fields = Fields::of(body.clone()).await?;
    let name = front.pool.meant(fields.model.as_deref().or(fields.name.as_deref()))?;
    match front.pool.watched(&name) {
        Some(lease) => pass_on(lease, Passed { method, uri, headers, body }).await,
        None => show_file(front.pool.described(&name).await?).await,
    }
}

/// `POST /api/pull`: no model's process is needed for a download.
///
/// # Errors
/// Clients may not download models, or one is being downloaded.
pub async fn pull(State(front): State<Arc<Front>>, request: Request) -> Result<Response, ApiError> {
    let (body, _share) = read(request, &front.app, MAX_BODY).await?;
    pull_as_asked(&front.app, front::Fields::parse(&body)).await
}

/// `POST /models/load`.
///
/// # Errors
/// There is no such model, or it cannot be loaded.
pub async fn load(State(front): State<Arc<Front>>, request: Request) -> Result<Response, ApiError> {
    let name = named(&front, request).await?;
    drop(front.pool.lease(&name, None).await?);
    Ok(json(&object!({"success": true, "model": name})))
}

/// `POST /models/unload`.
///
/// # Errors
/// There is no such model.
pub async fn unload(State(front): State<Arc<Front>>, request: Request) -> Result<Response, ApiError> {
    let name = named(&front, request).await?;
    if !front.pool.unload(&name) {
        return Err(ApiError::not_loaded(&name));
    }
    Ok(json(&object!({"success": true, "model": name})))
}

async fn named(front: &Front, request: Request) -> Result<String, ApiError> {
    let (body, _share) = read(request, &front.app, MAX_BODY).await?;
    let fields: Fields = serde_json::from_slice(&body)
        .map_err(|error| ApiError::request(format!("the request body is not JSON: {error}")))?;
    let name = fields.model.ok_or_else(|| ApiError::missing("model"))?;
    front.pool.meant(Some(&name))
}

/// `GET /health`.
pub async fn health(State(front): State<Arc<Front>>) -> Response {
    let seen = front.pool.seen();
    let count = |phase| seen.iter().filter(|model| model.phase == Some(phase)).count();
    json(&object!({
        "status": "ok",
        "models": seen.len(),
        "loaded": count(Phase::Ready),
        "loading": count(Phase::Loading),
        "running": seen.iter().map(|model| model.running).sum::<usize>(),
    }))
}

/// `GET /v1/models`.
pub async fn list(State(front): State<Arc<Front>>) -> Response {
    let data: Vec<Value> = front.pool.seen().iter().map(described).collect();
    json(&object!({"object": "list", "data": data}))
}

/// `GET /v1/models/{name}`.
///
/// # Errors
/// There is no such model.
pub async fn one(State(front): State<Arc<Front>>, Path(name): Path<String>) -> Result<Response, ApiError> {
    let name = front.pool.meant(Some(&name))?;
    let seen = front.pool.seen().into_iter().find(|model| model.name == name);
    Ok(json(&described(&seen.ok_or_else(|| ApiError::no_model(&name))?)))
}

fn described(model: &Seen) -> Value {
    object!({
        "id": model.name,
        "object": "model",
        "created": 0,
        "owned_by": "terrace",
        // As the router of llama.cpp's server has it.
        "status": {"value": model.phase.map_or("unloaded", Phase::name)},
        "running": model.running,
        "memory_bytes": model.memory.bytes(),
        "expires_in": model.expires.map(|time| time.as_secs()),
    })
}

/// `GET /api/tags`: all models.
pub async fn tags(State(front): State<Arc<Front>>) -> Response {
    let models: Vec<Value> = front.pool.seen().iter().map(|model| of_ollama(model, false)).collect();
    json(&object!({"models": models}))
}

/// `GET /api/ps`: the loaded ones.
pub async fn ps(State(front): State<Arc<Front>>) -> Response {
    let seen = front.pool.seen();
    let loaded = seen.iter().filter(|model| model.phase == Some(Phase::Ready));
    json(&object!({"models": loaded.map(|model| of_ollama(model, true)).collect::<Vec<Value>>()}))
}

fn of_ollama(model: &Seen, loaded: bool) -> Value {
    let mut value = object!({
        "name": model.name,
        "model": model.name,
        "modified_at": time(Utc::now()),
        "size": model.memory.bytes(),
        "digest": "",
        "details": {"format": "gguf", "family": "", "families": [], "parameter_size": "", "quantization_level": ""},
    });
    if loaded {
        let left = model.expires.unwrap_or(FOR_EVER);
        value["expires_at"] = time(Utc::now() + left).into();
        value["size_vram"] = 0.into();
    }
    value
}

/// `GET /metrics`: of this process, or with `?model=` those of a model's process.
///
/// # Errors
/// There is no such model, or it is not loaded.
pub async fn metrics(State(front): State<Arc<Front>>, request: Request) -> Result<Response, ApiError> {
    if query_value(request.uri().query(), "model").is_some() {
        return passed(&front, request).await;
    }
    let mut text = Exposition::default();
    front.app.write_metrics(&mut text);
    let (seen, totals) = (front.pool.seen(), front.pool.totals());
    text.family("models", "gauge", "Models by state");
    for phase in [Phase::Loading, Phase::Ready, Phase::Leaving] {
        let count = seen.iter().filter(|model| model.phase == Some(phase)).count();
        text.sample("models", &[("state", phase.name())], count);
    }
    text.gauge(
        "models_memory_bytes",
        "RAM for weights and contexts of all models",
        front.pool.memory().bytes(),
    );
    text.family("model_memory_bytes", "gauge", "RAM that a model has");
    for model in seen.iter().filter(|model| model.phase.is_some()) {
        text.sample("model_memory_bytes", &[("model", &model.name)], model.memory.bytes());
    }
    text.family("model_requests_running", "gauge", "Requests that a model is serving");
    for model in seen.iter().filter(|model| model.phase.is_some()) {
        text.sample("model_requests_running", &[("model", &model.name)], model.running);
    }
    text.counter("model_loads_total", "Models loaded", totals.loads);
    text.counter(
        "model_load_failures_total",
        "Models that could not be loaded, or whose process ended",
        totals.failures,
    );
    text.family("model_unloads_total", "counter", "Models unloaded, by reason");
    for (why, count) in [("memory", totals.evicted), ("unused", totals.expired), ("asked", totals.asked)] {
        text.sample("model_unloads_total", &[("why", why)], count);
    }
    Ok(text.respond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_a_prompt_are_known() {
        let empty = |text: &str| serde_json::from_str::<Fields>(text).unwrap().is_empty();
        assert!(empty(r#"{"model": "m"}"#) && empty(r#"{"prompt": ""}"#) && empty(r#"{"messages": []}"#));
        assert!(!empty(r#"{"prompt": "x"}"#) && !empty(r#"{"prompt": "", "messages": [{}]}"#));
    }
}
