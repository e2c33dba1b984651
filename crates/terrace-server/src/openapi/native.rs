//! llama-server's API: completions, infill, and Terrace's facts about answers.

use super::fields::{Maybe, Nullable, Object, OneOrMore, Whole};
use super::operation::Operation;
use super::requests::{AnswerFields, LimitFields, MixedText, Prompt};
use super::sampling::{ConstraintFields, SamplerFields};
use schemars::JsonSchema;
use serde_json::Value;

/// `POST /completion`.
pub fn completion() -> Operation {
    Operation::new("Continues a text, as llama.cpp's server does.", "The response; with `stream`, events.")
        .body::<NativeRequest>()
        .generates::<OneOrMore<NativeCompletion>>()
}

/// `POST /infill`.
pub fn infill() -> Operation {
    Operation::new(
        "Fills a gap in a text, as llama.cpp's server does.",
        "The response; with `stream`, events.",
    )
    .body::<InfillRequest>()
    .generates::<NativeCompletion>()
}

/// Fields of other servers that have no effect are accepted; fields that would change the answer, and
/// unknown ones, are refused.
#[derive(JsonSchema)]
struct NativeRequest {
    prompt: Prompt,
    #[serde(flatten)]
    native: NativeFields,
}

/// Fields of other servers that have no effect are accepted; fields that would change the answer, and
/// unknown ones, are refused.
#[derive(JsonSchema)]
struct InfillRequest {
    /// Text before the gap: a text, tokens, or both.
    input_prefix: MixedText,
    /// Text after the gap.
    input_suffix: MixedText,
    /// The beginning of the text for the gap.
    prompt: Option<String>,
    /// Other files.
    #[schemars(length(max = 1024))]
    input_extra: Option<Vec<ExtraFile>>,
    #[serde(flatten)]
    native: NativeFields,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct ExtraFile {
    text: String,
    filename: Option<String>,
}

#[derive(JsonSchema)]
struct NativeFields {
    #[serde(flatten)]
    limits: LimitFields,
    #[serde(flatten)]
    samplers: SamplerFields,
    #[serde(flatten)]
    answer: AnswerFields,
    #[serde(flatten)]
    constraint: ConstraintFields,
    return_tokens: Option<bool>,
    #[schemars(range(min = 0, max = 100))]
    n_probs: Option<Whole>,
    /// The answer ends at a line that is indented by fewer blanks; not at the first one.
    #[schemars(range(min = -1, max = i32::MAX))]
    n_indent: Option<Whole>,
    /// The answer ends with a line after this time.
    #[schemars(range(min = -1, max = i32::MAX))]
    t_max_predict_ms: Option<Whole>,
    /// Paths of the fields of the answer, as `timings/prompt_n`.
    response_fields: Option<Vec<String>>,
    /// Report with `n_probs` the probabilities after the samplers (`prob`, `top_probs`), among the tokens
    /// that they leave.
    post_sampling_probs: Option<bool>,
}

#[derive(JsonSchema)]
struct NativeCompletion {
    index: Whole,
    content: String,
    tokens: Vec<Whole>,
    #[schemars(extend("const" = true))]
    stop: bool,
    #[schemars(extend("enum" = ["eos", "word", "limit", "none"]))]
    stop_type: String,
    stopping_word: String,
    model: String,
    tokens_predicted: Whole,
    tokens_evaluated: Whole,
    tokens_cached: Whole,
    truncated: bool,
    timings: Object,
    terrace: Facts,
    #[serde(default)]
    generation_settings: Maybe<Object>,
    #[serde(default)]
    completion_probabilities: Maybe<Vec<Value>>,
    /// True if the response has a line break.
    #[serde(default)]
    has_new_line: Maybe<bool>,
    /// The prompt, if `response_fields` names it.
    #[serde(default)]
    prompt: Maybe<String>,
}

/// Facts about an answer that go beyond the API.
#[derive(JsonSchema)]
pub struct Facts {
    /// Number of replacements of tensors when the first token was computed.
    epoch_first: Whole,
    /// Number of replacements of tensors when the last token was computed.
    epoch_last: Whole,
    #[schemars(extend("enum" = ["end_of_text", "length", "stop_string", "cancelled", "context_full"]))]
    stop: String,
    stop_string: Nullable<String>,
    /// Milliseconds spent waiting for a server slot.
    queued_ms: f64,
    timings: Object,
    #[serde(default)]
    experts: Maybe<ExpertsUsed>,
    /// Loss; absent if the model is computed exactly. `settings` and the fields after it only with
    /// --lossy; what was computed for other requests meanwhile counts there as well.
    #[serde(default)]
    lossy: Maybe<Lossy>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct Lossy {
    /// The lossy settings in effect.
    #[schemars(length(min = 1))]
    marks: Vec<LossyMark>,
    /// As --lossy takes them.
    #[serde(default)]
    settings: Maybe<String>,
    /// Result of the calibration.
    cost: Option<Object>,
    /// The quality budget since the model was loaded; absent if there is none.
    #[serde(default)]
    budget: Maybe<LossyBudget>,
    /// Pairs of token and expert in passes of one token.
    #[serde(default)]
    pairs: Maybe<Whole>,
    /// Pairs whose expert the router alone would not have chosen.
    #[serde(default)]
    substituted: Maybe<Whole>,
    /// Pairs that were left out.
    #[serde(default)]
    dropped: Maybe<Whole>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct LossyBudget {
    /// The permitted mean Kullback-Leibler divergence per token, in nats.
    budget: f64,
    /// The mean divergence of all tokens, as measured on some.
    spent: f64,
    /// Tokens that were computed with loss.
    tokens: Whole,
    /// Of these, those that were computed exactly as well.
    exact_passes: Whole,
    /// The settings now, as --lossy takes them.
    prior: f64,
    drop: f64,
    /// 0 without a file of experts in fewer bits.
    low_below: f64,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct LossyMark {
    #[schemars(extend("enum" = ["lossy", "layer_skip", "kv_type"]))]
    setting: String,
    value: String,
    /// Effect and cost, in words.
    text: String,
}

/// Uses of experts while the request had its server slot; absent for models without experts,
/// and if the mode of /moe-layer-perf is off. Counters belong to the server: if other requests were
/// computed at the same time, theirs are included, and `shared` is true. A slot is a pair of token and
/// expert, as in the hot cache of adrianhoehne/llama.cpp.
#[derive(JsonSchema)]
struct ExpertsUsed {
    /// Pairs that devices computed from copies.
    hot_slots: Whole,
    /// All other pairs, of layers whose experts are not whole on a device.
    cold_slots: Whole,
    /// `hot_slots` of all pairs, from 0 to 1.
    hit_rate: f64,
    /// Copies on devices at the end.
    hot_experts: Whole,
    /// Exchanges that paid: those made, and for each layer at most one that still waited at the end.
    candidates: Whole,
    /// Experts copied to devices, also by files applied meanwhile.
    exchanged: Whole,
    /// Layers that got other copies.
    layers_changed: Whole,
    /// Uses of streamed weights that were in RAM.
    ram_hits: Whole,
    /// Uses of streamed weights that had to be read.
    ram_misses: Whole,
    /// Uses of streamed weights that were already being read.
    ram_joined: Whole,
    /// Bytes read from the model's files, also ahead of use.
    read_bytes: Whole,
    /// True if another request had a server slot at the same time.
    shared: bool,
}
