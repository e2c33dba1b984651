//! The parts of a plan as they are shown, kept and read back.

use super::mode::Mode;
use super::warning::Note;
use serde::{Deserialize, Serialize};
use std::fmt;
use terrace_model::ByteSize;
use terrace_model::KvTypes;

/// The model of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedModel {
    /// `general.name`, or the architecture.
    pub name: String,
    /// `general.architecture`.
    pub architecture: String,
    /// Tensors.
    pub tensors: u64,
    /// Their bytes.
    pub bytes: ByteSize,
}

/// The context of a plan, which is counted before any weight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedContext {
    /// Tokens.
    pub tokens: u32,
    /// Type of keys and values.
    pub kv_type: KvTypes,
    /// Keys, values and states.
    pub cache: ByteSize,
    /// Activations, on each place that computes.
    pub compute: ByteSize,
    /// Logits where more than one token's are kept.
    pub logits: ByteSize,
    /// What it takes of RAM, beside the budget.
    pub ram: ByteSize,
}

impl PlannedContext {
    /// Memory that it takes, wherever that is.
    pub fn total(&self) -> ByteSize {
        self.cache + self.compute + self.logits
    }
}

/// A tier with what is in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TierUse {
    /// `ram`, a device's name, `disk`.
    pub tier: String,
    /// What may be used of it; the disk: none.
    pub room: Option<ByteSize>,
    /// Weights that stay; on the disk: weights that are read, less what RAM caches of them.
    pub weights: ByteSize,
    /// Slots that cache experts.
    pub expert_cache: ByteSize,
    /// Slots that streamed matrices go through.
    pub ring: ByteSize,
    /// Keys, values, states, activations.
    pub context: ByteSize,
}

impl TierUse {
    /// All of it.
    pub fn used(&self) -> ByteSize {
        self.weights + self.expert_cache + self.ring + self.context
    }
}

/// A layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedLayer {
    /// The block's number; none: the output head.
    pub layer: Option<u32>,
    /// What is done with its weights.
    pub mode: Mode,
    /// `ram` or a device's name: what computes its dense part, and holds its part of the context.
    pub home: String,
    /// Dense weights that stay there.
    pub resident: ByteSize,
    /// Dense weights that are read for every token.
    pub streamed: ByteSize,
    /// Its experts.
    pub experts: Option<PlannedExperts>,
}

/// Routed experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedExperts {
    /// How many.
    pub count: u32,
    /// How many a token uses.
    pub used: u32,
    /// Bytes of all.
    pub bytes: ByteSize,
    /// How many are on the layer's device: the hottest.
    pub on_device: u32,
    /// Share of all that RAM holds.
    pub in_ram: f64,
    /// Share of all that is on disk alone.
    pub on_disk: f64,
    /// Expected share of uses that read nothing.
    pub hits: f64,
}

/// What a token should cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Generated tokens per second, caches warm.
    pub decode_tok_s: f64,
    /// Prompt tokens per second.
    pub prefill_tok_s: f64,
    /// Milliseconds from a prompt of `prompt_tokens` to the first token, the model loaded.
    pub ttft_ms: f64,
    /// That prompt.
    pub prompt_tokens: u32,
    /// Milliseconds for reading what stays, before the first run.
    pub load_ms: f64,
    /// What keeps a token from being faster.
    pub bound: Bound,
    /// Bytes read from disk per token.
    pub read_per_token: ByteSize,
    /// Share of expert uses that read nothing; none without experts.
    pub hit_rate: Option<f64>,
    /// Tokens per second that no plan exceeds on this machine, by the relaxed program.
    pub ceiling_tok_s: Option<f64>,
    /// What a token's time is made of.
    pub terms: Vec<Term>,
    /// What it rests on.
    pub notes: Vec<Note>,
}

impl Estimate {
    /// Milliseconds per token of the parts that `of` picks.
    pub fn ms(&self, of: impl Fn(&Term) -> bool) -> f64 {
        self.terms.iter().filter(|term| of(term)).map(|term| term.ms).sum()
    }
}

/// A part of a token's time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// What is done.
    pub what: String,
    /// The same for programs.
    pub kind: TermKind,
    /// Milliseconds per token.
    pub ms: f64,
    /// What it keeps busy.
    pub resource: Bound,
    /// Done while other parts run: not a summand of the token's time.
    pub beside: bool,
}

/// Kinds of parts of a token's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TermKind {
    /// Computing all but routed experts.
    Dense,
    /// Computing routed experts.
    Experts,
    /// Waiting for what is read.
    Waiting,
    /// Between processors.
    Link,
    /// Reading.
    Reading,
}

/// A resource that time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Reading from storage.
    Disk,
    /// Reading RAM or a device's memory.
    Memory,
    /// Arithmetic, and what layers cost whatever their size.
    Compute,
    /// Handing over between processors.
    Link,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Disk => "disk",
            Self::Memory => "memory",
            Self::Compute => "compute",
            Self::Link => "link",
        })
    }
}

/// Copies of a layer's experts on a device; the experts themselves are streamed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotCopies {
    /// The device.
    pub device: String,
    /// The layer.
    pub layer: u32,
    /// Experts that have room.
    pub slots: u32,
}
