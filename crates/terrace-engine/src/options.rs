//! What a caller can choose.

use crate::pressure::Adapt;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};
use terrace_store::{DirectChoice, IoChoice, PolicyKind};

/// Who runs the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The Terrace backend.
    Terrace,
    /// llama.cpp as it is, weights mapped from the file: what Terrace is compared with.
    Stock {
        /// Let it convert weights to its repacked layouts, as its own programs do by default.
        repack: bool,
    },
}

/// How much may be read ahead on a guess of the next layer's experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lookahead {
    /// As measured to be best.
    #[default]
    Auto,
    /// Nothing.
    Off,
    /// Slots of this size.
    Bytes(ByteSize),
}

impl Lookahead {
    /// Bytes that guesses may take of the `slots`.
    pub fn bytes(self, slots: ByteSize) -> ByteSize {
        match self {
            Self::Auto => AUTO_LOOKAHEAD.min(ByteSize(slots.bytes() / AUTO_SHARE)),
            Self::Off => ByteSize::ZERO,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// What the disk reads while attention and the router compute, with some in reserve: 3 ms at 2.5 GB/s. Half of it leaves the
/// disk idle, twice as much makes demand wait for wrong guesses (`docs/benchmarks.md`, router lookahead).
const AUTO_LOOKAHEAD: ByteSize = ByteSize::mib(8);
/// The part of the slots that guesses take at most.
const AUTO_SHARE: u64 = 8;

impl FromStr for Lookahead {
    type Err = <ByteSize as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            size => size.parse().map(Self::Bytes),
        }
    }
}

impl fmt::Display for Lookahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Off => f.pad("off"),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

/// How to load and run a model.
#[derive(Clone, Debug)]
pub struct Options {
    /// The GGUF file, the first shard of a split model.
    pub model: PathBuf,
    /// Who runs it.
    pub mode: Mode,
    /// Which weights come from the store.
    pub manage: Manage,
    /// RAM for weights, resident ones and slots together.
    pub ram_budget: Budget,
    /// Whether the budget follows the memory that there is.
    pub adapt: Adapt,
    /// Readings of memory out of a file, for tests.
    pub simulated_memory: Option<PathBuf>,
    /// I/O engine.
    pub io: IoChoice,
    /// Past the page cache or through it.
    pub direct: DirectChoice,
    /// Which blocks go when the slots are full.
    pub cache_policy: PolicyKind,
    /// How much may be read ahead on a guess.
    pub lookahead: Lookahead,
    /// Where it is kept which experts the model uses, so that the next run reads the hottest ahead; none: nowhere. Recording
    /// a trace switches it off.
    pub warm_start: Option<PathBuf>,
    /// Where [`Engine::save_trace`](crate::Engine::save_trace) writes what the routers chose.
    pub record_trace: Option<PathBuf>,
    /// Where [`Engine::save_profile`](crate::Engine::save_profile) writes when what was read and computed.
    pub profile: Option<PathBuf>,
    /// A file of [`LayerSkip`](crate::LayerSkip): layers that are not computed. Lossy.
    pub layer_skip: Option<PathBuf>,
    /// Tokens in the context; none: what the model was trained with, 4096 at most.
    pub ctx: Option<u32>,
    /// Most prompt tokens per decode call.
    pub batch: u32,
    /// Tokens of a decode call whose logits are kept; generating needs the last one's only.
    pub outputs: u32,
    /// Most tokens per graph; none: 512, or 2,048 for models with experts where memory allows, since a graph of so many
    /// tokens uses nearly all experts, however many tokens it has.
    pub ubatch: Option<u32>,
    /// Compute threads; none: what the process may run on.
    pub threads: Option<u32>,
    /// Faults to inject into reads, for tests (`eio@100`).
    pub faults: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            model: PathBuf::new(),
            mode: Mode::Terrace,
            manage: Manage::Auto,
            ram_budget: Budget::Auto,
            adapt: Adapt::default(),
            simulated_memory: None,
            io: IoChoice::Auto,
            direct: DirectChoice::Auto,
            cache_policy: PolicyKind::default(),
            lookahead: Lookahead::default(),
            warm_start: None,
            record_trace: None,
            profile: None,
            layer_skip: None,
            ctx: None,
            batch: 2048,
            outputs: 1,
            ubatch: None,
            threads: None,
            faults: None,
        }
    }
}
