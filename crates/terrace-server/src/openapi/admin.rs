//! Health, settings, memory, server slots, adapters, and the page.

use super::errors::{BODY, ErrorForm, INVALID, KEYED, NOT_FOUND, NOT_JSON, NOT_PROVIDED, SERVER};
use super::experts::of_model;
use super::fields::{Maybe, Object, Whole};
use super::operation::Operation;
use super::requests::ModelName;
use super::sampling::{AdapterScale, SamplerFields};
use schemars::JsonSchema;
use serde_json::{Value, json};

/// `GET /`.
pub fn page() -> Operation {
    Operation::new("A page: a chat, server slots, tokens per second, weights.", "The page.")
        .open()
        .content::<String>("text/html")
        .errors(ErrorForm::OpenAi, &[&[403]])
}

/// `GET /page/{path}`.
pub fn page_file() -> Operation {
    Operation::new("A file of the page.", "The file.")
        .open()
        .path("path", None, json!({"type": "string", "minLength": 1}))
        .content::<String>("*/*")
        .unless_unchanged()
        .errors(ErrorForm::OpenAi, &[INVALID, &[403], NOT_FOUND])
}

/// `GET /openapi.json`.
pub fn openapi() -> Operation {
    Operation::new("This document.", "This document.").json::<Document>().errors(ErrorForm::OpenAi, &[KEYED])
}

/// `GET /health`.
pub fn health() -> Operation {
    Operation::new("Whether the server can be used.", "The server can be used.")
        .open()
        .json::<Health>()
        .errors(ErrorForm::OpenAi, &[&[403], SERVER])
}

/// `POST /models/load`.
pub fn load() -> Operation {
    let summary =
        "Loads a model, and responds when it is loaded. A server of one model has it loaded already.";
    Operation::new(summary, "Done.")
        .body::<ModelName>()
        .json::<Done>()
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, NOT_FOUND, BODY, SERVER, NOT_JSON])
}

/// `POST /models/unload`.
pub fn unload() -> Operation {
    let summary =
        "Unloads a model once its running requests have ended. A server of one model keeps it (409).";
    Operation::new(summary, "Done.")
        .body::<ModelName>()
        .json::<Done>()
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, NOT_FOUND, BODY, &[409], SERVER])
}

/// `GET /v1/memory`.
pub fn memory() -> Operation {
    let summary = "The memory of the slots that the model's weights stream through.";
    of_model(Operation::new(summary, "The slots."))
        .json::<Memory>()
        .errors(ErrorForm::OpenAi, &[KEYED, SERVER])
}

/// `POST /v1/memory`.
pub fn set_memory() -> Operation {
    let summary = "Limits the slots; memory beyond the limit is given back to the system.";
    Operation::new(summary, "The slots.")
        .body::<MemoryRequest>()
        .json::<Memory>()
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, SERVER, NOT_JSON])
}

/// `POST /v1/tensors/reload`.
pub fn reload() -> Operation {
    let partial = "Keep the bytes of tensors that cannot be replaced, and replace all others. Otherwise one of them \
                   refuses all.";
    Operation::new("Reloads tensors that changed in the model's files.", "What was replaced.")
        .query("partial", partial, json!({"type": "boolean", "default": false}))
        .json::<Reload>()
        .errors(ErrorForm::Refused, &[&[409]])
        .errors(ErrorForm::OpenAi, &[KEYED, SERVER])
}

/// `GET /props`.
pub fn props() -> Operation {
    Operation::new("Settings and facts.", "Settings and facts.")
        .json::<Props>()
        .errors(ErrorForm::OpenAi, &[KEYED, SERVER])
}

/// `POST /props`.
pub fn set_props() -> Operation {
    Operation::new("Changes the default sampling parameters; needs `--props`.", "The answer.")
        .body::<PropsRequest>()
        .json::<PropsChanged>()
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, BODY, SERVER, NOT_PROVIDED, NOT_JSON])
}

/// `GET /lora-adapters`.
pub fn adapters() -> Operation {
    let summary = "The adapters (LoRA) by their numbers, with the scales for requests that name none.";
    Operation::new(summary, "The answer.").json::<Vec<Adapter>>().errors(ErrorForm::OpenAi, &[KEYED, &[503]])
}

/// `POST /lora-adapters`.
pub fn scale() -> Operation {
    let summary = "Sets the scales of adapters for requests that name none. Those that are not in the list are not added.";
    Operation::new(summary, "The answer.")
        .body::<Vec<AdapterScale>>()
        .json::<Success>()
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, BODY, SERVER, NOT_JSON])
}

/// `GET /slots`.
pub fn slots() -> Operation {
    let none = "1: answer 503 if all slots are in use.";
    Operation::new("States of the server slots.", "The slots.")
        .query("fail_on_no_slot", none, json!({"type": "string"}))
        .json::<Vec<Slot>>()
        .errors(ErrorForm::OpenAi, &[KEYED, SERVER])
}

/// `POST /slots/{id}`.
pub fn slot_action() -> Operation {
    let summary = "Saves what a server slot holds in a file of the configured directory, restores it from there, or \
                   empties the slot. Waits until no request uses the slot.";
    let actions = json!({"type": "string", "enum": ["save", "restore", "erase"]});
    Operation::new(summary, "What was done.")
        .path("id", Some("The slot's number."), json!({"type": "integer", "minimum": 0}))
        .parameter("action", "query", true, Some("What to do."), actions)
        .optional_body::<SlotFile>("Needed to save and to restore.")
        .json::<SlotAction>()
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, BODY, &[429], SERVER, NOT_PROVIDED, NOT_JSON])
}

/// `GET /metrics`.
pub fn metrics() -> Operation {
    Operation::new("Counters and gauges for Prometheus.", "Counters and gauges.")
        .content::<String>("text/plain")
        .errors(ErrorForm::OpenAi, &[KEYED, SERVER])
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Document {
    openapi: String,
    paths: Object,
}

#[derive(JsonSchema)]
struct Health {
    #[schemars(extend("const" = "ok"))]
    status: String,
    epoch: Whole,
    slots_idle: Whole,
    slots_processing: Whole,
    waiting: Whole,
    #[serde(default)]
    reload: Maybe<Object>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Done {
    #[serde(default)]
    success: Maybe<bool>,
    #[serde(default)]
    model: Maybe<String>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Memory {
    /// null: nothing streams.
    slots: Option<WeightSlots>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct WeightSlots {
    /// The least bytes that they can work with.
    #[serde(default)]
    least: Maybe<Whole>,
    /// Bytes with which they were opened.
    #[serde(default)]
    most: Maybe<Whole>,
    /// Limit now.
    #[serde(default)]
    limit: Maybe<Whole>,
    /// Bytes that they hold.
    #[serde(default)]
    held: Maybe<Whole>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct MemoryRequest {
    /// Bytes for all slots together.
    slots: Whole,
    #[serde(default)]
    model: Maybe<String>,
}

#[derive(JsonSchema)]
struct Reload {
    epoch: Whole,
    swapped: Vec<Swapped>,
    /// With partial=true, the tensors that keep their bytes, and why; absent if there are none.
    #[serde(default)]
    refused: Maybe<Vec<Value>>,
    /// The last reload that replaced tensors, where this one found nothing to do: one by --watch or of
    /// another request.
    #[serde(default)]
    earlier: Maybe<EarlierReload>,
    unchanged: Whole,
    cleared: bool,
    seconds: f64,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Swapped {
    tensor: String,
    /// Its type before.
    from: String,
    /// Its type now.
    to: String,
    /// The file that it comes from now.
    path: String,
    /// Its offset in that file, in bytes.
    offset: Whole,
    /// Its bytes there.
    size: Whole,
    /// The SHA-256 of these, with --verify, unless it returned.
    #[serde(default)]
    sha256: Maybe<String>,
    /// Bytes that were read for it.
    bytes: Whole,
    /// Place of its bytes.
    #[schemars(extend("enum" = ["original", "detached", "fallback-cpu", "streamed"]))]
    state: String,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct EarlierReload {
    #[serde(default)]
    epoch: Maybe<Whole>,
    #[serde(default)]
    tensors: Maybe<Whole>,
    #[serde(default)]
    seconds_ago: Maybe<f64>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Props {
    default_generation_settings: Object,
    total_slots: Whole,
    model_alias: String,
    model_path: String,
    chat_template: String,
    terrace: Object,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct PropsRequest {
    /// Less than 0: until the answer ends.
    #[schemars(range(min = -2, max = u32::MAX))]
    n_predict: Option<Whole>,
    #[serde(flatten)]
    samplers: SamplerFields,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct PropsChanged {
    success: bool,
    default_generation_settings: Object,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Adapter {
    #[schemars(range(min = 0))]
    id: Whole,
    path: String,
    scale: f64,
    /// Task of the adapter, if its file states it.
    task_name: String,
    /// Beginning of prompts for it, if its file states it.
    prompt_prefix: String,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Success {
    success: bool,
}

#[derive(JsonSchema)]
struct Slot {
    id: Whole,
    n_ctx: Whole,
    is_processing: bool,
    #[schemars(extend("enum" = ["idle", "prefill", "decode"]))]
    state: String,
    held_tokens: Whole,
    prompt_tokens: Whole,
    generated_tokens: Whole,
    epoch: Whole,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct SlotFile {
    /// A plain name, without separators and not beginning with a dot.
    #[serde(default)]
    filename: Maybe<String>,
}

#[derive(JsonSchema)]
struct SlotAction {
    id_slot: Whole,
    #[serde(default)]
    filename: Maybe<String>,
    /// Tokens that were saved.
    #[serde(default)]
    n_saved: Maybe<Whole>,
    /// Bytes of the file.
    #[serde(default)]
    n_written: Maybe<Whole>,
    /// Tokens that the slot holds now.
    #[serde(default)]
    n_restored: Maybe<Whole>,
    /// Bytes of the file.
    #[serde(default)]
    n_read: Maybe<Whole>,
    /// Tokens that the slot held.
    #[serde(default)]
    n_erased: Maybe<Whole>,
    #[serde(default)]
    timings: Maybe<SlotTimings>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct SlotTimings {
    #[serde(default)]
    save_ms: Maybe<f64>,
    #[serde(default)]
    restore_ms: Maybe<f64>,
}
