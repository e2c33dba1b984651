//! Experts: learn files, copies on devices, uses.

use super::errors::{BODY, ErrorForm, INVALID, KEYED, NOT_FOUND, NOT_JSON, SERVER};
use super::fields::{Maybe, Object, Whole};
use super::operation::Operation;
use schemars::JsonSchema;
use serde_json::json;

/// `GET /moe-layer-perf`.
pub fn layer_perf() -> Operation {
    let summary = "How often each expert was used since the start of the window, as a learn file.";
    of_model(Operation::new(summary, "The learn file."))
        .json::<LearnFile>()
        .errors(ErrorForm::OpenAi, &[KEYED, SERVER, NOT_FOUND])
}

/// `POST /moe-layer-perf`.
pub fn set_layer_perf() -> Operation {
    let summary = "Sets what is reported, and starts a new window.";
    of_model(Operation::new(summary, "The learn file of the new window."))
        .body::<ReportMode>()
        .json::<LearnFile>()
        .errors(ErrorForm::OpenAi, &[INVALID, BODY, KEYED, SERVER, NOT_FOUND, NOT_JSON])
}

/// `GET /moe-hot-cache`.
pub fn apply_current() -> Operation {
    let summary = "Copies the experts that were used most to devices: those of the body, of `json`, or of what is \
                   reported now. Saves nothing.";
    let operation = Operation::new(summary, "What was copied.");
    of_model(operation.query("json", "A learn file, instead of the body.", json!({"type": "string"})))
        .json::<Applied>()
        .errors(ErrorForm::OpenAi, &[&[429], INVALID, BODY, KEYED, SERVER, NOT_FOUND])
}

/// `POST /moe-hot-cache`.
pub fn apply_body() -> Operation {
    let summary = "Copies the experts that a learn file counts as used most to devices.";
    of_model(Operation::new(summary, "What was copied."))
        .body::<LearnFile>()
        .json::<Applied>()
        .errors(ErrorForm::OpenAi, &[&[429], INVALID, BODY, KEYED, SERVER, NOT_FOUND, NOT_JSON])
}

/// `GET /v1/experts`.
pub fn experts() -> Operation {
    since(Operation::new("Where each expert is, and how often it was used.", "The experts."))
        .json::<Experts>()
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, SERVER])
}

/// `GET /v1/experts/stream`.
pub fn stream() -> Operation {
    let summary = "Changes of where each expert is and how often it was used, several times a second.";
    let rate = json!({"type": "number", "minimum": 0.1, "maximum": 10});
    since(Operation::new(summary, "Events."))
        .query("rate", "Events per second; 4 if it is not given.", rate)
        .parameter("Last-Event-ID", "header", false, Some("As `since`."), json!({"type": "integer"}))
        .content::<Experts>("text/event-stream")
        .errors(ErrorForm::OpenAi, &[INVALID, KEYED, SERVER])
}

/// Adds the name of the model.
pub fn of_model(operation: Operation) -> Operation {
    operation.query(
        "model",
        "The name of the served model; any other is not found.",
        json!({"type": "string"}),
    )
}

fn since(operation: Operation) -> Operation {
    let description = "The cursor of an earlier response; only later changes are returned.";
    operation.query("since", description, json!({"type": "integer"}))
}

#[derive(JsonSchema)]
struct ReportMode {
    /// full: counts and times; update: counts; off: nothing, and experts are not exchanged between tokens.
    #[schemars(extend("enum" = ["full", "update", "off"]))]
    mode: String,
    /// The name of the served model; any other is not found.
    #[serde(default)]
    model: Maybe<String>,
}

#[derive(JsonSchema)]
struct LearnFile {
    #[serde(default)]
    enabled: Maybe<bool>,
    #[serde(default)]
    #[schemars(extend("enum" = ["full", "update", "off"]))]
    mode: Maybe<String>,
    #[schemars(extend("enum" = ["llama.cpp.moe_layer_opt_perf.v1", "llama.cpp.moe_layer_perf.v1"]))]
    schema: String,
    #[serde(default)]
    model: Maybe<String>,
    #[serde(default)]
    n_expert: Maybe<Whole>,
    #[serde(default)]
    n_expert_used: Maybe<Whole>,
    #[serde(default)]
    updates: Maybe<Whole>,
    #[serde(default)]
    overflow_resets: Maybe<Whole>,
    #[serde(default)]
    summary: Maybe<Object>,
    /// In requests: whether to save it in the server's --learn-dir.
    #[serde(default)]
    save_to_disk: Maybe<bool>,
    layers: Vec<LearntLayer>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct LearntLayer {
    layer: Whole,
    #[serde(default)]
    calls: Maybe<Whole>,
    #[serde(default)]
    hot_slots_total: Maybe<Whole>,
    #[serde(default)]
    cold_slots_total: Maybe<Whole>,
    #[serde(default)]
    hot_slot_ratio: Maybe<f64>,
    #[serde(default)]
    experts: Maybe<Vec<[Whole; 2]>>,
    #[serde(default)]
    hot_experts: Maybe<Vec<[Whole; 2]>>,
    #[serde(default)]
    cold_experts: Maybe<Vec<[Whole; 2]>>,
}

#[derive(JsonSchema)]
struct Applied {
    success: bool,
    active: bool,
    update_rate: f64,
    /// Experts copied.
    exchanged: Whole,
    /// Experts that had no copy and for which there is a slot.
    candidates: Whole,
    max_exchange: Whole,
    /// Copies on all devices after that.
    hot_experts: Whole,
    layers_changed: Whole,
    saved_to_disk: bool,
    #[serde(default)]
    path: Maybe<String>,
    /// The file that was there before.
    backup_path: Option<String>,
    /// The layers that got other copies, each with the number of experts copied.
    layers: Vec<[Whole; 2]>,
}

#[derive(JsonSchema)]
struct Experts {
    /// To be sent as `since`.
    cursor: Whole,
    /// True: everything that is not listed is zero. Otherwise it is unchanged.
    #[serde(default)]
    whole: Maybe<bool>,
    #[serde(default)]
    #[schemars(extend("enum" = ["full", "update", "off"]))]
    mode: Maybe<String>,
    #[serde(flatten)]
    counters: ExpertCounters,
    /// Left out if unchanged.
    #[serde(default)]
    layers: Maybe<Vec<ExpertLayer>>,
    /// For each layer: pairs of token and expert since the load, and how many of them devices computed.
    layer_pairs: Vec<Whole>,
    /// Experts, numbered through all layers: distance from the previous one listed, and pairs since the
    /// load.
    uses: Vec<Whole>,
    /// Experts, numbered through all layers: distance from the previous one listed, and its place, a sum:
    /// 1 in RAM, 2 on a device, 4 being read; 0 on disk alone.
    places: Vec<Whole>,
}

#[derive(JsonSchema)]
struct ExpertCounters {
    #[serde(default)]
    working: Maybe<Whole>,
    #[serde(default)]
    waiting: Maybe<Whole>,
    #[serde(default)]
    epoch: Maybe<Whole>,
    #[serde(default)]
    prompt_tokens: Maybe<Whole>,
    #[serde(default)]
    generated_tokens: Maybe<Whole>,
    #[serde(default)]
    pairs: Maybe<Whole>,
    #[serde(default)]
    pairs_on_devices: Maybe<Whole>,
    #[serde(default)]
    device_bytes: Maybe<Whole>,
    #[serde(default)]
    exchanged: Maybe<Whole>,
    #[serde(default)]
    hits: Maybe<Whole>,
    #[serde(default)]
    misses: Maybe<Whole>,
    #[serde(default)]
    joined: Maybe<Whole>,
    #[serde(default)]
    read_bytes: Maybe<Whole>,
    #[serde(default)]
    stall_ms: Maybe<Whole>,
    #[serde(default)]
    resident_bytes: Maybe<Whole>,
    #[serde(default)]
    capacity_bytes: Maybe<Whole>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct ExpertLayer {
    layer: Whole,
    experts: Whole,
    #[serde(default)]
    device: Maybe<String>,
    #[serde(default)]
    slots: Maybe<Whole>,
    #[serde(default)]
    problem: Maybe<String>,
}
