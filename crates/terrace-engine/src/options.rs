//! What a caller can choose.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use terrace_backend::HotUpdate;
use terrace_ggml::llama::SplitMode;
use terrace_host::pressure::Adapt;
use terrace_model::KvTypes;
use terrace_model::{ByteSize, SizeChoice};
use terrace_plan::{Budget, HitCurve, Manage, TensorRule};
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

/// How much may be read ahead on a guess of the next layer's experts: as measured to be best, nothing, or slots of this size.
pub type Lookahead = SizeChoice;

/// Whether devices hold copies of experts: if the plan says so, not at all, or in so many bytes of each device at most.
pub type HotCacheChoice = SizeChoice;

/// Bytes that guesses may take of the `slots`.
pub(crate) fn lookahead_bytes(choice: Lookahead, slots: ByteSize) -> ByteSize {
    match choice {
        Lookahead::Auto => AUTO_LOOKAHEAD.min(ByteSize(slots.bytes() / AUTO_SHARE)),
        Lookahead::Off => ByteSize::ZERO,
        Lookahead::Bytes(bytes) => bytes,
    }
}

/// What the disk reads while attention and the router compute, with some in reserve: 3 ms at 2.5 GB/s. Half of it leaves the
/// disk idle, twice as much makes demand wait for wrong guesses (`docs/benchmarks.md`, router lookahead).
const AUTO_LOOKAHEAD: ByteSize = ByteSize::mib(8);
/// The part of the slots that guesses take at most.
const AUTO_SHARE: u64 = 8;

/// How keys and values are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvChoice {
    /// In these types. Anything but [`KvTypes::F16`] is lossy.
    Types(KvTypes),
    /// Both in the largest type under which the model fits; a smaller one if it is streamed, and that makes it faster.
    Auto,
}

impl Default for KvChoice {
    fn default() -> Self {
        Self::Types(KvTypes::F16)
    }
}

impl FromStr for KvChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => text.parse().map(Self::Types).map_err(|error: String| error + ", or auto"),
        }
    }
}

impl fmt::Display for KvChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Types(types) => types.fmt(f),
        }
    }
}

/// What becomes of the keys and values in the context when tensors are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnReload {
    /// They are computed anew, with the new weights, where they are needed.
    #[default]
    Clear,
    /// They stay as the old weights made them.
    Keep,
}

impl FromStr for OnReload {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "clear" => Ok(Self::Clear),
            "keep" => Ok(Self::Keep),
            _ => Err(format!("`{text}` is not clear or keep")),
        }
    }
}

impl fmt::Display for OnReload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Clear => "clear",
            Self::Keep => "keep",
        })
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
    /// Servers (`HOST:PORT`) whose devices are used like this machine's own.
    pub rpc: Vec<String>,
    /// Layers on devices, the last ones, the output head counted as one; none: as many as pay.
    pub device_layers: Option<u32>,
    /// How devices share the layers that they hold.
    pub split_mode: SplitMode,
    /// What each device may hold.
    pub vram_budget: Budget,
    /// Whether devices hold copies of the experts that are used most, of layers that stream.
    pub hot_cache: HotCacheChoice,
    /// How much of them may be exchanged between two tokens.
    pub hot_update: HotUpdate,
    /// Whether each device has a slice of every one of them, instead of those of some layers.
    pub hot_split: bool,
    /// A plan by `terrace plan --json`, which is followed instead of [`Options::manage`] and [`Options::ram_budget`].
    pub plan: Option<PathBuf>,
    /// Where single tensors go, whatever the plan says of them.
    pub rules: Vec<TensorRule>,
    /// Tokens of the prompt that estimates are for.
    pub expected_prompt: u32,
    /// How experts are expected to be reused; none: as is usual for their numbers.
    pub hits: Option<HitCurve>,
    /// I/O engine.
    pub io: IoChoice,
    /// Requests in flight at most; none: as measured on the device.
    pub queue_depth: Option<u32>,
    /// Size of a request at most; none: as measured on the device.
    pub request_size: Option<ByteSize>,
    /// Percent of the slots that the budget allows which are used; the page cache may have the rest.
    pub slots_share: u32,
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
    /// Tokens in the context, of each [slot](crate::serving) where it has several; none: what the model was trained with, 4096
    /// at most.
    pub ctx: Option<u32>,
    /// Types of keys and values. Anything but [`KvTypes::F16`] is lossy.
    pub kv_type: KvChoice,
    /// Whether devices hold the cache of their layers, and compute attention.
    pub kv_offload: bool,
    /// Most prompt tokens per decode call.
    pub batch: u32,
    /// Tokens of a decode call whose logits are kept; generating needs the last one's only.
    pub outputs: u32,
    /// Sequences that the context holds, for [`Engine::hellaswag`](crate::Engine::hellaswag) and [`serving`](crate::serving);
    /// everything else needs one.
    pub sequences: u32,
    /// Whether they share the context's tokens, as HellaSwag's endings do. Otherwise each has [`Options::ctx`] of its own,
    /// as a server's slots do.
    pub unified: bool,
    /// Most tokens per graph; none: 512, or 2,048 for models with experts where memory allows, since a graph of so many
    /// tokens uses nearly all experts, however many tokens it has.
    pub ubatch: Option<u32>,
    /// Compute threads; none: what the process may run on.
    pub threads: Option<u32>,
    /// Whether the model's files may be written to while it is loaded: nothing is then computed from a mapping of them.
    pub reloads: bool,
    /// What becomes of the context when tensors are replaced.
    pub on_reload: OnReload,
    /// Faults to inject into reads, for tests (`eio@100`).
    pub faults: Option<String>,
}

impl Options {
    /// Sequences with a context of their own.
    pub(crate) fn slots(&self) -> u32 {
        if self.unified { 1 } else { self.sequences.max(1) }
    }
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
            rpc: Vec::new(),
            device_layers: None,
            split_mode: SplitMode::default(),
            vram_budget: Budget::Auto,
            hot_cache: HotCacheChoice::default(),
            hot_update: HotUpdate::default(),
            hot_split: false,
            plan: None,
            rules: Vec::new(),
            expected_prompt: 512,
            hits: None,
            io: IoChoice::Auto,
            queue_depth: None,
            request_size: None,
            slots_share: 100,
            direct: DirectChoice::Auto,
            cache_policy: PolicyKind::default(),
            lookahead: Lookahead::default(),
            warm_start: None,
            record_trace: None,
            profile: None,
            layer_skip: None,
            ctx: None,
            kv_type: KvChoice::default(),
            kv_offload: true,
            batch: 2048,
            outputs: 1,
            sequences: 1,
            unified: true,
            ubatch: None,
            threads: None,
            reloads: false,
            on_reload: OnReload::default(),
            faults: None,
        }
    }
}
