//! What the user wants: one request for all commands.

mod budget;
mod cached;
mod curve;
mod devices;
mod eviction;
mod expected;
mod hot;
mod hot_split;
mod kv_choice;
pub(crate) mod manage;
mod paths;

pub use budget::{Budget, ParseBudgetError};
pub use cached::{CacheHits, CacheShape};
pub use curve::{CurveError, HitCurve, HotClass};
pub(crate) use devices::CopiesRoom;
pub use eviction::Eviction;
pub use expected::{Expected, ExpectedSource};
pub use hot::{ByDevice, HotSize, ParseHotSizeError, PerDevice};
pub use hot_split::{HotSplit, ParseHotSplitError};
pub use kv_choice::KvChoice;
pub use manage::{Manage, ParseManageError};
pub use paths::PrefillPaths;

use crate::error::PlanError;
use crate::model::{ContextSize, auto_ubatch, check_kv_types, context_size, context_tokens};
use crate::plan::PlanFile;
use crate::rules::TensorRule;
use terrace_model::{ByteSize, KvTypes, ModelFile};

/// What the user wants of a run: which weights may live where, how much memory they may take, and
/// the context.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// A written plan to follow. It overrides what is streamed, what lies on devices, the expert
    /// cache and the context.
    pub written: Option<PlanFile>,
    /// Which weights are streamed.
    pub manage: Manage,
    /// Places of single tensors, which override everything else.
    pub rules: Vec<TensorRule>,
    /// RAM for weights: resident ones and slots.
    pub ram_budget: Budget,
    /// RAM for conversations that are kept beside the context. [`Budget::Auto`] means as
    /// [`prompt_cache`](crate::model::prompt_cache) says.
    pub prompt_cache: Budget,
    /// Percentage of the possible slots to use; the rest is left to the page cache.
    pub slots_share: u32,
    /// Whether all weights may be mapped if they fit. False if something else determines how they
    /// are read.
    pub mapping: bool,
    /// The devices that may be used; `None` means all.
    pub devices: Option<Vec<String>>,
    /// Memory of each device for weights and context.
    pub vram_budget: ByDevice<Budget>,
    /// Memory that stays free on each device with an automatic budget; `None` means as
    /// `device_room` says.
    pub vram_reserve: ByDevice<Option<ByteSize>>,
    /// Number of layers on devices, counted from the last, the output head included. `None` means
    /// as many as make the run faster.
    pub device_layers: Option<u32>,
    /// Number of layers, counted from the first, whose experts are on no device except as copies.
    /// `u32::MAX` means all.
    pub host_experts: u32,
    /// Whether each device holds a slice of every matrix, instead of whole layers.
    pub split: bool,
    /// Memory of each device for copies of the hottest experts.
    pub hot_cache: ByDevice<HotSize>,
    /// How devices share the copies, if their memory for these is given. Slices are cut, and thereby
    /// decided, at load.
    pub hot_split: HotSplit,
    /// Tokens in the context of each sequence. `None` means the model's trained length, but at most
    /// [`DEFAULT_CONTEXT`](crate::model::DEFAULT_CONTEXT).
    pub context: Option<u32>,
    /// Number of sequences with a context of their own.
    pub slots: u32,
    /// Tokens of a second context, and most tokens of its graphs, of which all leave logits; `None`
    /// means that there is none.
    pub embedding: Option<(u32, u32)>,
    /// Types of keys and values.
    pub kv_type: KvChoice,
    /// Whether devices hold the keys and values of their layers, and compute attention.
    pub kv_offload: bool,
    /// Most tokens per call.
    pub batch: u32,
    /// Most tokens per graph. `None` means as [`auto_ubatch`] says.
    pub ubatch: Option<u32>,
    /// Number of tokens per call whose logits are kept.
    pub outputs: u32,
    /// The prompt and the tokens generated after it that plans are made for.
    pub expected: Expected,
    /// What runs do with devices in prefill.
    pub paths: PrefillPaths,
    /// Number of clients that are answered at the same time: a graph generates a token for each.
    pub clients: u32,
    /// How often experts are reused. `None` means [`HitCurve::typical`] of the model.
    pub hits: Option<HitCurve>,
    /// Share of drafts of tokens that are expected to be right; 0 if it is not to be said what drafts
    /// would gain.
    pub drafts_right: f64,
    /// What the cache of experts in RAM evicts.
    pub eviction: Eviction,
    /// Bytes of experts that are read ahead, on a guess of what the next layer needs.
    pub lookahead: ByteSize,
    /// Memory of contexts as llama.cpp reports it, by type. Contexts of other types are estimated.
    pub measured: Vec<(KvTypes, ContextSize)>,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            written: None,
            manage: Manage::Auto,
            rules: Vec::new(),
            ram_budget: Budget::Auto,
            prompt_cache: Budget::Bytes(ByteSize::ZERO),
            slots_share: 100,
            mapping: true,
            devices: None,
            vram_budget: ByDevice::all(Budget::Auto),
            vram_reserve: ByDevice::all(None),
            device_layers: None,
            host_experts: 0,
            split: false,
            hot_cache: ByDevice::all(HotSize::Auto),
            hot_split: HotSplit::Layers,
            context: None,
            slots: 1,
            embedding: None,
            kv_type: KvChoice::default(),
            kv_offload: true,
            batch: 2048,
            ubatch: None,
            outputs: 1,
            expected: Expected::default(),
            paths: PrefillPaths::default(),
            clients: 1,
            hits: None,
            drafts_right: crate::drafts::RIGHT,
            eviction: Eviction::default(),
            lookahead: ByteSize::mib(8),
            measured: Vec::new(),
        }
    }
}

impl Wishes {
    /// Returns the tokens of the context that are asked for, whatever the model allows.
    pub fn asked_tokens(&self) -> Option<u32> {
        self.written.as_ref().map(|plan| plan.context.tokens).or(self.context)
    }

    /// Returns the tokens of the context.
    pub fn tokens(&self, model: &ModelFile) -> u32 {
        context_tokens(model, self.asked_tokens())
    }

    /// Returns the types of keys and values that may be chosen for a model, the largest first.
    ///
    /// # Errors
    /// The one that is asked for does not suit the model ([`check_kv_types`]).
    pub fn kv_types(&self, model: &ModelFile) -> Result<Vec<KvTypes>, PlanError> {
        let asked = match &self.written {
            Some(plan) => std::slice::from_ref(&plan.context.kv_type),
            None => self.kv_type.types(),
        };
        match asked {
            [one] => check_kv_types(model, *one).map(|()| vec![*one]),
            several => {
                Ok(several.iter().copied().filter(|types| check_kv_types(model, *types).is_ok()).collect())
            }
        }
    }

    /// Returns the most tokens per call.
    pub fn batch(&self, model: &ModelFile) -> u32 {
        self.batch.clamp(1, self.tokens(model))
    }

    /// Returns the most tokens per graph, if `available` bytes of memory are free.
    pub fn ubatch(&self, model: &ModelFile, available: ByteSize) -> u32 {
        let auto = || auto_ubatch(model, self.tokens(model), available);
        self.ubatch.unwrap_or_else(auto).clamp(1, self.batch(model))
    }

    /// Returns the memory of the contexts of all sequences, measured or estimated. Each sequence
    /// has a KV cache of its own; graphs have the same size.
    pub fn context_size(&self, model: &ModelFile, kv_type: KvTypes, available: ByteSize) -> ContextSize {
        let measured = self.measured.iter().find(|(ty, _)| *ty == kv_type);
        let first = measured.map(|(_, context)| *context).unwrap_or_else(|| {
            let ubatch = self.ubatch(model, available);
            let one = context_size(model, self.tokens(model), kv_type, ubatch, self.outputs);
            let cache = ByteSize(one.cache.bytes().saturating_mul(self.slots.max(1).into()));
            ContextSize { cache, ..one }
        });
        self.embedding.map_or(first, |(tokens, ubatch)| {
            let second = context_size(model, tokens, kv_type, ubatch, ubatch);
            ContextSize {
                cache: first.cache + second.cache,
                compute: first.compute + second.compute,
                logits: first.logits + second.logits,
            }
        })
    }
}
