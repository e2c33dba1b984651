//! Fields that choose tokens, of several APIs ([`crate::request::sampling`]).

use super::fields::{Maybe, Object, OneOrMore, Whole};
use schemars::JsonSchema;
use serde_json::Value;
use std::collections::BTreeMap;

/// The largest number of 32 bits with a sign.
const I31: i32 = i32::MAX;

// `crate::request::sampling::sampling`
#[derive(JsonSchema)]
pub struct SamplerFields {
    #[schemars(range(min = 0, max = 100))]
    temperature: Option<f64>,
    #[schemars(range(min = -1, max = I31))]
    top_k: Option<Whole>,
    #[schemars(range(min = 0, max = 1))]
    top_p: Option<f64>,
    #[schemars(range(min = 0, max = 1))]
    min_p: Option<f64>,
    /// -1: a random one.
    #[schemars(extend("format" = "int64"))]
    seed: Option<Whole>,
    #[schemars(range(min = 0, max = 1))]
    typical_p: Option<f64>,
    /// Another name of `typical_p`.
    #[schemars(range(min = 0, max = 1))]
    typ_p: Option<f64>,
    /// Another name of `typical_p`.
    #[schemars(range(min = 0, max = 1))]
    typical: Option<f64>,
    #[schemars(range(min = -1, max = 1_000_000))]
    top_n_sigma: Option<f64>,
    /// Another name of `top_n_sigma`.
    #[schemars(range(min = -1, max = 1_000_000))]
    nsigma: Option<f64>,
    #[schemars(range(min = 0, max = 100))]
    dynatemp_range: Option<f64>,
    #[schemars(range(min = 0, max = 100))]
    dynatemp_exponent: Option<f64>,
    #[schemars(range(min = 0, max = 1))]
    xtc_probability: Option<f64>,
    #[schemars(range(min = 0, max = 1))]
    xtc_threshold: Option<f64>,
    #[schemars(range(min = 0, max = I31))]
    min_keep: Option<Whole>,
    #[schemars(range(min = -1, max = I31))]
    repeat_last_n: Option<Whole>,
    #[schemars(range(min = 1e-6, max = 1_000_000))]
    repeat_penalty: Option<f64>,
    /// Another name of `repeat_penalty`.
    #[schemars(range(min = 1e-6, max = 1_000_000))]
    repetition_penalty: Option<f64>,
    /// Another name of `repeat_penalty`.
    #[schemars(range(min = 1e-6, max = 1_000_000))]
    rep_pen: Option<f64>,
    #[schemars(range(min = -1e9, max = 1e9))]
    frequency_penalty: Option<f64>,
    #[schemars(range(min = -1e9, max = 1e9))]
    presence_penalty: Option<f64>,
    #[schemars(range(min = 0, max = 1_000_000))]
    dry_multiplier: Option<f64>,
    #[schemars(range(min = 0, max = 1_000_000))]
    dry_base: Option<f64>,
    #[schemars(range(min = 0, max = I31))]
    dry_allowed_length: Option<Whole>,
    #[schemars(range(min = -1, max = I31))]
    dry_penalty_last_n: Option<Whole>,
    dry_sequence_breakers: Option<OneOrMore<String>>,
    #[schemars(range(min = 0, max = 2))]
    mirostat: Option<Whole>,
    #[schemars(range(min = 0, max = 1_000_000))]
    mirostat_tau: Option<f64>,
    #[schemars(range(min = 0, max = 1_000_000))]
    mirostat_eta: Option<f64>,
    #[schemars(range(min = -1, max = 1))]
    adaptive_target: Option<f64>,
    #[schemars(range(min = 0, max = 0.99))]
    adaptive_decay: Option<f64>,
    samplers: Option<SamplerOrder>,
    /// Additions to the logits of tokens, or false: never.
    logit_bias: Option<Biases>,
    ignore_eos: Option<bool>,
    #[schemars(range(min = 0, max = u32::MAX))]
    min_tokens: Option<Whole>,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum SamplerOrder {
    /// Letters, in order.
    Letters(String),
    Names(Vec<Sampler>),
}

#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Sampler {
    Dry,
    TopK,
    TopP,
    MinP,
    TypP,
    Temperature,
    Xtc,
    Infill,
    Penalties,
    TopNSigma,
    AdaptiveP,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Biases {
    ByToken(BTreeMap<String, Bias>),
    Pairs(Vec<Value>),
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
enum Bias {
    Number(f64),
    Never(#[schemars(extend("const" = false))] bool),
}

/// An adapter (LoRA).
#[derive(JsonSchema)]
#[schemars(inline)]
pub struct AdapterScale {
    #[schemars(range(min = 0))]
    id: Whole,
    /// Its scale; 0 without this field.
    #[schemars(range(min = -1_000_000, max = 1_000_000))]
    scale: Option<f64>,
}

// `crate::request::lora::lora`
#[derive(JsonSchema)]
pub struct LoraField {
    /// The adapters for this answer; those that are not in the list are not added. Without this field: as
    /// `/lora-adapters` says.
    lora: Option<Vec<AdapterScale>>,
}

// `crate::request::constraint::Constraint`
#[derive(JsonSchema)]
pub struct ConstraintFields {
    /// A grammar in llama.cpp's form.
    grammar: Option<String>,
    /// A JSON schema that the answer follows.
    json_schema: Option<Object>,
    response_format: Option<ResponseFormat>,
    /// A grammar, as SGLang names it.
    ebnf: Option<String>,
    /// A pattern that the whole answer matches, as SGLang names it.
    regex: Option<String>,
    /// Constraints of vLLM: `json`, `json_object`, `regex`, `choice` or `grammar`.
    structured_outputs: Option<Object>,
    /// Older names of these.
    guided_json: Option<Object>,
    guided_json_object: Option<bool>,
    guided_regex: Option<String>,
    guided_choice: Option<Vec<String>>,
    guided_grammar: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct ResponseFormat {
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["text", "json_object", "json_schema"]))]
    kind: String,
    #[serde(default)]
    json_schema: Maybe<NamedSchema>,
    #[serde(default)]
    schema: Maybe<Object>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct NamedSchema {
    #[serde(default)]
    name: Maybe<String>,
    strict: Option<bool>,
    description: Option<String>,
    schema: Object,
}
