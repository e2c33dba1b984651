//! Ollama's endpoints about models, of which there is one.

use super::time::time;
use crate::app::{LoadedModel, Ready};
use crate::capabilities;
use crate::error::ApiError;
use crate::request::body::Body;
use crate::request::off_thread;
use crate::response::json;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde_json::{Value, json as object};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use terrace_engine::ChatTemplate;
use terrace_model::{MetaValue, ModelFile};
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
/// It is another model's name, or the model's file can no longer be read.
pub async fn show(LoadedModel(ready): LoadedModel, body: Body) -> Result<Response, ApiError> {
    off_thread(move || {
        let mut fields = body.fields()?;
        // `name` is the older one.
        for named in [fields.text("model")?, fields.text("name")?].into_iter().flatten() {
            if !is_named(&ready.name, &named) {
                return Err(ApiError::no_model(&named));
            }
        }
        let facts = &ready.facts;
        let shown = Shown {
            name: &ready.name,
            file: &facts.file,
            context: facts.context,
            template: facts.chat_template.as_deref(),
            capabilities: capabilities::of_model(&ready),
        };
        Ok(json(&shown.object(&summary(&ready)?)))
    })
    .await
}

/// A model that need not be loaded.
pub struct ModelFileFacts {
    /// Its name in requests.
    pub name: String,
    /// Its file, or the first of its shards.
    pub file: PathBuf,
    /// Tokens of the context that requests would get.
    pub context: usize,
    /// True if images can be read.
    pub sees: bool,
}

/// `POST /api/show` of a model that is not loaded: its file's header suffices.
///
/// # Errors
/// The model's file cannot be read.
pub async fn show_file(model: ModelFileFacts) -> Result<Response, ApiError> {
    off_thread(move || {
        let ModelFileFacts { name, file, context, sees } = &model;
        let header = header(file)?;
        let source = header.str("tokenizer.chat_template");
        let template = source.and_then(|source| ChatTemplate::parse(source, None, None).ok());
        let key = format!("{}.attention.causal", header.architecture());
        let generates = header.metadata.get(&key) != Some(&MetaValue::Bool(false));
        let capabilities = capabilities::of(generates, *sees, template.as_ref());
        let shown = Shown { name, file, context: *context, template: source, capabilities };
        Ok(json(&shown.object(&Summary::of(&header))))
    })
    .await
}

/// Returns true if a client's name of a model is the one that is served, with or without Ollama's usual tag.
fn is_named(served: &str, asked: &str) -> bool {
    asked.is_empty() || asked == served || asked.strip_suffix(":latest") == Some(served)
}

/// The parts of a model's description that its header does not have.
struct Shown<'a> {
    name: &'a str,
    file: &'a Path,
    /// Tokens of a server slot, of however many the model can be used with: clients fill as many as are stated.
    context: usize,
    template: Option<&'a str>,
    capabilities: Vec<&'static str>,
}

impl Shown<'_> {
    fn object(&self, summary: &Summary) -> Value {
        let Self { name, file, context, template, capabilities } = self;
        let architecture = &summary.architecture;
        object!({
            "modelfile": format!("FROM {}", file.display()),
            "parameters": format!("num_ctx {context}"),
            "template": template.unwrap_or_default(),
            "details": details(summary),
            "model_info": {
                "general.architecture": architecture,
                "general.basename": name,
                "general.parameter_count": summary.parameters,
                format!("{architecture}.context_length"): context,
                format!("{architecture}.block_count"): summary.n_layers,
                format!("{architecture}.embedding_length"): summary.n_embd,
            },
            "capabilities": capabilities,
            "modified_at": time(modified(file)),
        })
    }
}

fn summary(ready: &Ready) -> Result<Summary, ApiError> {
    Ok(Summary::of(&header(&ready.facts.file)?))
}

fn header(file: &Path) -> Result<ModelFile, ApiError> {
    terrace_ggml::gguf::read(file).map_err(|error| ApiError::internal(error.to_string()))
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
