//! Results as JSON.

use crate::failure::Failure;
use crate::status::Status;
use serde_json::{Value, json};
use terrace_cli::report::{DeviceLayers, ForetoldReport, hot_experts, store_report};
use terrace_engine::{Answer, Engine};
use terrace_store::{CopyReport, LayerReport};

/// The result of a generation.
pub fn of_generation(answer: &Answer) -> Value {
    json!({
        "text": String::from_utf8_lossy(&answer.text),
        "tokens": answer.tokens,
        "prompt_tokens": answer.prompt_tokens,
        "stop": answer.stop,
        "stop_string": answer.stop_string,
        "epochs": answer.epochs,
        "timings": answer.timings,
    })
}

/// Facts about a loaded model, and what it has read so far.
pub fn statistics(engine: &Engine) -> Value {
    json!({
        "file": engine.file().to_string_lossy(),
        "load_ms": engine.load_ms(),
        "context": engine.context_size(),
        "vocabulary": engine.vocabulary(),
        "epoch": engine.epoch(),
        "plan": engine.plan(),
        "store": store_report(engine),
        "foretold": ForetoldReport::of(engine),
        "hot_experts": hot_experts(engine),
        "device_layers": DeviceLayers::of(engine),
        "layers": engine.layer_stats().iter().map(LayerReport::from).collect::<Vec<_>>(),
        "copies": CopyReport::all(&engine.copies()),
        "peak_rss_bytes": terrace_host::peak_rss().bytes(),
    })
}

/// Writes a result as text.
///
/// # Errors
/// It cannot be written, which is a defect.
pub fn text(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| {
        Failure::new(Status::TerracePanic, format!("internal: a result is no JSON: {error}"))
    })
}
