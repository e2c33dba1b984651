//! Ollama's endpoints about models, of which there is one.

use super::time::time;
use crate::app::{LoadedModel, Ready};
use crate::error::ApiError;
use crate::request::body::Body;
use crate::request::off_thread;
use crate::response::json;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde_json::{Value, json as object};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;
use terrace_plan::model::Summary;

/// The release of Ollama whose API this server's has the form of. Clients compare it with the least that they
/// need: VS Code refuses servers below 0.6.4, Codex below 0.13.4.
const OLLAMA: &str = "0.14.2";

/// `GET /api/version`.
pub async fn version() -> Response {
    json(&object!({"version": OLLAMA, "terrace": env!("CARGO_PKG_VERSION")}))
}

/// `GET /api/tags`.
///
/// # Errors
/// The model's file can no longer be read.
pub async fn tags(LoadedModel(ready): LoadedModel) -> Result<Response, ApiError> {
    models(ready, |_| {}).await
}

/// `GET /api/ps`.
///
/// # Errors
/// The model's file can no longer be read.
pub async fn ps(LoadedModel(ready): LoadedModel) -> Result<Response, ApiError> {
    models(ready, |model| {
        // The model stays loaded for as long as the server runs. Clients read years of four digits, and
        // some count nanoseconds in 64 bits.
        model["expires_at"] = time(DateTime::<Utc>::from_timestamp_nanos(i64::MAX)).into();
        model["size_vram"] = 0.into();
    })
    .await
}

async fn models(
    ready: std::sync::Arc<Ready>,
    more: impl Fn(&mut Value) + Send + 'static,
) -> Result<Response, ApiError> {
    off_thread(move || {
        let summary = summary(&ready)?;
        let mut model = object!({
            "name": ready.name,
            "model": ready.name,
            "modified_at": time(modified(&ready.facts.file)),
            "size": summary.file_bytes,
            "digest": digest(&ready),
            "details": details(&summary),
        });
        more(&mut model);
        Ok(json(&object!({"models": [model]})))
    })
    .await
}

/// `POST /api/show`.
///
/// # Errors
/// The model's file can no longer be read.
pub async fn show(LoadedModel(ready): LoadedModel, _: Body) -> Result<Response, ApiError> {
    off_thread(move || {
        let summary = summary(&ready)?;
        let architecture = &summary.architecture;
        // Clients fill as many tokens as they are told of: those of a server slot, of however many the model can
        // be used with.
        let context = ready.facts.context;
        Ok(json(&object!({
            "modelfile": format!("FROM {}", ready.facts.file.display()),
            "parameters": format!("num_ctx {context}"),
            "template": ready.facts.chat_template.as_deref().unwrap_or_default(),
            "details": details(&summary),
            "model_info": {
                "general.architecture": architecture,
                "general.basename": ready.name,
                "general.parameter_count": summary.parameters,
                format!("{architecture}.context_length"): context,
                format!("{architecture}.block_count"): summary.n_layers,
                format!("{architecture}.embedding_length"): summary.n_embd,
            },
            "capabilities": capabilities(&ready),
            "modified_at": time(modified(&ready.facts.file)),
        })))
    })
    .await
}

/// What clients may ask of the model, in Ollama's terms.
fn capabilities(ready: &Ready) -> Vec<&'static str> {
    if !ready.facts.generates() {
        return vec!["embedding"];
    }
    let template = ready.template_of_chats();
    let has = |name| template.is_some_and(|template| template.can(name));
    let mut all = vec!["completion"];
    if has("supports_tools") {
        all.push("tools");
    }
    if has("supports_thinking") {
        all.push("thinking");
    }
    if ready.facts.sees() {
        all.push("vision");
    }
    all
}

fn summary(ready: &Ready) -> Result<Summary, ApiError> {
    let header = terrace_ggml::gguf::read(&ready.facts.file);
    Ok(Summary::of(&header.map_err(|error| ApiError::internal(error.to_string()))?))
}

fn details(summary: &Summary) -> Value {
    let most = summary.types.iter().max_by_key(|ty| ty.bytes);
    object!({
        "parent_model": "",
        "format": "gguf",
        "family": summary.architecture,
        "families": [summary.architecture],
        "parameter_size": parameters(summary.parameters),
        "quantization_level": most.map(|ty| ty.ty.to_uppercase()),
    })
}

fn parameters(count: u64) -> String {
    match count as f64 {
        many if many >= 1e9 => format!("{:.1}B", many / 1e9),
        some => format!("{:.1}M", some / 1e6),
    }
}

/// An identifier of the model. It is not a digest of its bytes, which would take as long as reading
/// them.
fn digest(ready: &Ready) -> String {
    let identity = &ready.facts.identity;
    let text =
        format!("{}\n{}\n{}\n{}", ready.facts.file.display(), identity.name, identity.layers, identity.bytes);
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn modified(path: &Path) -> DateTime<Utc> {
    fs::metadata(path).and_then(|data| data.modified()).map_or(DateTime::UNIX_EPOCH, Into::into)
}
