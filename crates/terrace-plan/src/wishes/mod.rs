//! The user's request, for all commands.

mod paths;

pub use paths::PrefillPaths;

use crate::error::PlanError;
use crate::hits::{Eviction, HitCurve};
use crate::model::{ContextSize, agents_context, auto_ubatch, check_kv_types, context_size, context_tokens};
use crate::options::{
    Budget, ContextOptions, DeviceOptions, Expected, ExpectedSource, HotOptions, MemoryOptions,
};
use crate::plan::PlanFile;
use terrace_model::{ByteSize, KvTypes, ModelFile};

/// The user's request for a run: which weights may live where, how much memory they may take, and
/// the context.
#[derive(Clone, Debug)]
pub struct Wishes {
    /// A written plan to follow. It overrides what is streamed, what lies on devices, the expert
    /// cache and the context.
    pub written: Option<PlanFile>,
    /// RAM for weights.
    pub memory: MemoryOptions,
    /// Wishes for devices.
    pub devices: DeviceOptions,
    /// Copies of experts on devices. Slices are cut, and thereby decided, at load.
    pub hot: HotOptions,
    pub context: ContextOptions,
    /// RAM for conversations that are kept beside the context. [`Budget::Auto`] means as
    /// [`prompt_cache`](crate::model::prompt_cache) says.
    pub prompt_cache: Budget,
    /// Percentage of the possible slots to use; the rest is left to the page cache.
    pub slots_share: u32,
    /// True if all weights may be mapped if they fit. False if something else determines how they
    /// are read.
    pub mapping: bool,
    /// Tokens of a second context, and most tokens of its graphs, of which all leave logits; `None`
    /// means that there is none.
    pub embedding: Option<(u32, u32)>,
    /// The prompt and the tokens generated after it that plans are made for.
    pub expected: Expected,
    /// The lengths that the estimate is about, if the run's work is known.
    pub given: Option<Expected>,
    /// Use of devices in prefill.
    pub paths: PrefillPaths,
    /// Number of clients that are answered at the same time: a graph generates a token for each.
    pub clients: u32,
    /// Reuse of experts. `None` means [`HitCurve::typical`] of the model.
    pub hits: Option<HitCurve>,
    /// Share of drafts of tokens that are expected to be right; 0 if it is not to be said what drafts
    /// would gain.
    pub drafts_right: f64,
    /// Eviction of the expert cache in RAM.
    pub eviction: Eviction,
    /// Bytes of experts that are read ahead, on a guess of what the next layer needs.
    pub lookahead: ByteSize,
    /// Memory of contexts as llama.cpp reports it, by type. Contexts of other types are estimated.
    pub measured: Vec<(KvTypes, ContextSize)>,
    /// Share of the model's files that the page cache does not hold; 0 if that is not known.
    pub cold: f64,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            written: None,
            memory: MemoryOptions::default(),
            devices: DeviceOptions::default(),
            hot: HotOptions::default(),
            context: ContextOptions::default(),
            prompt_cache: Budget::Bytes(ByteSize::ZERO),
            slots_share: 100,
            mapping: true,
            embedding: None,
            expected: Expected::default(),
            given: None,
            paths: PrefillPaths::default(),
            clients: 1,
            hits: None,
            drafts_right: crate::drafts::RIGHT,
            eviction: Eviction::default(),
            lookahead: ByteSize::mib(8),
            measured: Vec::new(),
            cold: 0.0,
        }
    }
}

impl Wishes {
    /// Expects what earlier runs did, unless the user stated something.
    pub fn expect(&mut self, earlier: Option<Expected>) {
        if let (ExpectedSource::Assumed, Some(earlier)) = (self.expected.source, earlier) {
            self.expected = earlier;
        }
    }

    /// Returns the tokens of the context that are asked for, whatever the model allows.
    pub fn asked_tokens(&self) -> Option<u32> {
        self.written.as_ref().map(|plan| plan.context.tokens).or(self.context.ctx)
    }

    /// Returns the tokens of the context.
    pub fn tokens(&self, model: &ModelFile) -> u32 {
        context_tokens(model, self.asked_tokens())
    }

    /// Chooses the context of a server for agents, unless it is given.
    pub fn settle_context(&mut self, model: &ModelFile, available: ByteSize) {
        if self.context.agents && self.asked_tokens().is_none() {
            let types = self.context.kv_choice().types().first().copied().unwrap_or(KvTypes::F16);
            self.context.ctx = Some(agents_context(model, types, self.context.slots(), available));
        }
    }

    /// Returns the types of keys and values that may be chosen for a model, the largest first.
    ///
    /// # Errors
    /// The one that is asked for does not suit the model ([`check_kv_types`]).
    pub fn kv_types(&self, model: &ModelFile) -> Result<Vec<KvTypes>, PlanError> {
        let chosen = self.context.kv_choice();
        let asked = match &self.written {
            Some(plan) => std::slice::from_ref(&plan.context.kv_type),
            None => chosen.types(),
        };
        match asked {
            [one] => check_kv_types(model, *one).map(|()| vec![*one]),
            several => {
                Ok(several.iter().copied().filter(|types| check_kv_types(model, *types).is_ok()).collect())
            }
        }
    }

    /// Returns the tokens of all sequences' contexts, which may share a call or a graph.
    fn all_tokens(&self, model: &ModelFile) -> u32 {
        self.tokens(model).saturating_mul(self.context.slots())
    }

    /// Returns the most tokens per call.
    pub fn batch(&self, model: &ModelFile) -> u32 {
        self.context.batch.clamp(1, self.all_tokens(model))
    }

    /// Returns the most tokens per graph, if `available` bytes of memory are free.
    pub fn ubatch(&self, model: &ModelFile, available: ByteSize) -> u32 {
        let auto = || auto_ubatch(model, self.all_tokens(model), available);
        self.context.ubatch.unwrap_or_else(auto).clamp(1, self.batch(model))
    }

    /// Returns the memory of the contexts of all sequences, measured or estimated. Each sequence
    /// has a KV cache of its own; graphs have the same size.
    pub fn context_size(&self, model: &ModelFile, kv_type: KvTypes, available: ByteSize) -> ContextSize {
        let measured = self.measured.iter().find(|(ty, _)| *ty == kv_type);
        let first = measured.map(|(_, context)| *context).unwrap_or_else(|| {
            let ubatch = self.ubatch(model, available);
            let one = context_size(model, self.tokens(model), kv_type, ubatch, self.context.outputs);
            let cache = ByteSize(one.cache.bytes().saturating_mul(self.context.slots().into()));
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
