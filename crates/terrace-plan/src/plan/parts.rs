//! The parts of a plan as they are displayed, written and read back.

use super::mode::Mode;
use super::warning::Note;
use crate::options::ExpectedSource;
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
    /// Number of tensors.
    pub tensors: u64,
    /// Bytes of all tensors.
    pub bytes: ByteSize,
}

/// The context of a plan, which takes memory before any weight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedContext {
    /// Number of tokens.
    pub tokens: u32,
    /// Types of keys and values.
    pub kv_type: KvTypes,
    /// Bytes of keys, values and recurrent states.
    pub cache: ByteSize,
    /// Bytes of activations, for each place that computes.
    pub compute: ByteSize,
    /// Bytes of logits if those of more than one token are kept.
    pub logits: ByteSize,
    /// RAM that it takes in addition to the budget.
    pub ram: ByteSize,
}

impl PlannedContext {
    /// Returns the memory that it takes, in RAM or on devices.
    pub fn total(&self) -> ByteSize {
        self.cache + self.compute + self.logits
    }
}

/// The use of a tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TierUse {
    /// `ram`, a device's name, or `disk`.
    pub tier: String,
    /// Bytes that may be used; `None` for the disk.
    pub room: Option<ByteSize>,
    /// Bytes of resident weights; for the disk, of weights that are read, less what RAM caches of
    /// them.
    pub weights: ByteSize,
    /// Bytes of slots that cache experts.
    pub expert_cache: ByteSize,
    /// Bytes of slots that streamed matrices pass through.
    pub ring: ByteSize,
    /// Bytes of keys, values, states and activations.
    pub context: ByteSize,
}

impl TierUse {
    /// Returns the bytes of all uses.
    pub fn used(&self) -> ByteSize {
        self.weights + self.expert_cache + self.ring + self.context
    }
}

/// A layer, or the output head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedLayer {
    /// Number of the layer; `None` for the output head.
    pub layer: Option<u32>,
    /// The mode of its weights.
    pub mode: Mode,
    /// `ram` or a device's name: the place that computes its dense part and holds its part of the
    /// context.
    pub home: String,
    /// Bytes of dense weights that stay at home.
    pub resident: ByteSize,
    /// Bytes of dense weights that are read for every token.
    pub streamed: ByteSize,
    /// Its experts; `None` for a dense layer.
    pub experts: Option<PlannedExperts>,
}

/// Routed experts of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedExperts {
    /// Number of experts.
    pub count: u32,
    /// Number of experts that a token uses.
    pub used: u32,
    /// Bytes of all experts.
    pub bytes: ByteSize,
    /// Number of experts on the layer's device: the hottest.
    pub on_device: u32,
    /// Share of all experts that RAM holds.
    pub in_ram: f64,
    /// Share of all experts that is only on disk.
    pub on_disk: f64,
    /// Expected share of uses that read nothing.
    pub hits: f64,
}

/// The expected speed of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Generated tokens per second with warm caches.
    pub decode_tok_s: f64,
    /// Ranges of the speeds; `None` in plans of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranges: Option<Ranges>,
    /// Prompt tokens per second.
    pub prefill_tok_s: f64,
    /// Milliseconds from a prompt of `prompt_tokens` tokens to the first token, the model loaded.
    pub ttft_ms: f64,
    /// Length of that prompt in tokens.
    pub prompt_tokens: u32,
    /// Number of tokens that are expected to be generated after it.
    #[serde(default)]
    pub output_tokens: u32,
    /// The source of both numbers.
    #[serde(default)]
    pub expected: ExpectedSource,
    /// Milliseconds for the prompt and these tokens. Plans minimise those of usual lengths.
    #[serde(default)]
    pub answer_ms: f64,
    /// Milliseconds for reading resident weights before the first run.
    pub load_ms: f64,
    /// The first tokens, if the model is mapped and a part of it is still on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold: Option<ColdStart>,
    /// The resource that limits decoding.
    pub bound: Bound,
    /// Bytes read from disk per token.
    pub read_per_token: ByteSize,
    /// Bytes per token to devices of other machines and back.
    #[serde(default)]
    pub link_per_token: ByteSize,
    /// Share of expert uses that read nothing; `None` without experts.
    pub hit_rate: Option<f64>,
    /// Tokens per second of decoding that no plan exceeds on this machine, by the relaxed program;
    /// `None` if unknown.
    pub ceiling_tok_s: Option<f64>,
    /// Speed-up by drafts; `None` if that was not estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drafts: Option<DraftGain>,
    /// The parts of a token's time.
    pub terms: Vec<Term>,
    /// The assumptions of the estimate.
    pub notes: Vec<Note>,
}

/// The first tokens of a run whose mapped model is not in the page cache as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColdStart {
    /// Bytes of the model that are to be read.
    pub unread: ByteSize,
    /// Milliseconds that reading them takes, meanwhile.
    pub read_ms: f64,
    /// Milliseconds from the expected prompt to the first token.
    pub ttft_ms: f64,
    /// Tokens per second of the response that is expected, on average.
    pub decode_tok_s: f64,
}

/// Ranges that hold the measurement nine times of ten.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranges {
    /// Generated tokens per second.
    pub decode_tok_s: Range,
    /// Prompt tokens per second.
    pub prefill_tok_s: Range,
    /// Milliseconds to the first token.
    pub ttft_ms: Range,
}

/// The lowest and the highest value to expect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Range {
    pub low: f64,
    pub high: f64,
}

impl Range {
    /// Returns true if the value lies within it.
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

impl Estimate {
    /// Returns the milliseconds per token of the parts that `of` accepts.
    pub fn ms(&self, of: impl Fn(&Term) -> bool) -> f64 {
        // The sum of nothing is -0 in Rust.
        0.0 + self.terms.iter().filter(|term| of(term)).map(|term| term.ms).sum::<f64>()
    }
}

/// Speed-up by drafts that cost nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DraftGain {
    /// Share of drafts that is expected to be right.
    pub right: f64,
    /// The number of drafts of a pass that gains most.
    pub drafts: u32,
    /// Tokens per second with them, as a multiple of those without drafts.
    pub gain: f64,
    /// The least share of right drafts that pays; `None` if no share does.
    pub pays_from: Option<f64>,
}

impl DraftGain {
    /// Returns whether they pay.
    pub fn pays(&self) -> bool {
        self.pays_from.is_some_and(|least| self.right >= least)
    }
}

/// A part of a token's time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// A description of the change.
    pub what: String,
    /// The same for programs.
    pub kind: TermKind,
    /// Milliseconds per token.
    pub ms: f64,
    /// The resource that it uses.
    pub resource: Bound,
    /// True if it overlaps with other parts, so that it does not add to the token's time.
    pub beside: bool,
}

/// Kinds of parts of a token's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TermKind {
    /// Computing everything but routed experts.
    Dense,
    /// Computing routed experts.
    Experts,
    /// Waiting for reads.
    Waiting,
    /// Transfers between processors.
    Link,
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
    /// Arithmetic, and the fixed cost of layers.
    Compute,
    /// Transfers between processors.
    Link,
}

impl fmt::Display for DraftGain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { right, drafts, gain, pays_from } = self;
        let right = right * 100.0;
        let plural = if *drafts == 1 { "" } else { "s" };
        write!(
            f,
            "{gain:.2} times the speed with {drafts} draft{plural} per pass if {right:.0} % are right; "
        )?;
        match pays_from {
            Some(least) => write!(f, "faster from {:.0} % on", least * 100.0),
            None => f.write_str("never faster"),
        }
    }
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

/// Transit slots on a device for layers of which no device has copies: their experts, which stream, are
/// sent there for single graphs where that pays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransitSlots {
    /// Name of the device.
    pub device: String,
    /// Numbers of the layers.
    pub layers: Vec<u32>,
    /// Bytes of the device that the slots and their activations take, beside everything else.
    pub bytes: ByteSize,
}

/// Copies of a layer's experts on a device; the experts themselves are streamed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HotCopies {
    /// Name of the device.
    pub device: String,
    /// Number of the layer.
    pub layer: u32,
    /// Number of experts that have room.
    pub slots: u32,
}
