//! What placing goes by: the model, the machine and the context, known as well as the decision needs them.

use super::context_ask::HeaderModel;
use super::header::Header;
use crate::options::{HotCacheChoice, KvChoice, Mode, Options};
use crate::unfit::ReadingChoice;
use terrace_ggml::llama::SplitMode;
use terrace_host::available_memory;
use terrace_host::machine::{known_machine, machine_profile};
use terrace_model::{ByteSize, KvType, KvTypes, ModelFile};
use terrace_plan::{
    Budget, ContextSize, Machine, MachineProfile, Manage, Placement, auto_reserve, auto_ubatch, context_size,
    context_tokens,
};
use terrace_store::{DirectChoice, IoChoice};

/// Models below this size are not worth a probe, which itself takes up to 128 MiB for a moment: that would be most of what a
/// small model's run has resident.
const WORTH_PROBING: ByteSize = ByteSize::gib(1);

/// The types that may be chosen, the exact one first.
pub const AUTO_KV_TYPES: [KvTypes; 3] =
    [KvTypes::F16, KvTypes::both(KvType::Q8_0), KvTypes::both(KvType::Q4_0)];

/// What placing goes by.
pub struct Scene<'a> {
    pub options: &'a Options,
    /// What [`PlacementOptions::plan`](crate::options::PlacementOptions::plan) holds.
    pub written: Option<&'a Placement>,
    pub file: &'a ModelFile,
    pub tokens: u32,
    pub batch: u32,
    pub ubatch: u32,
    /// RAM that there is.
    pub available: ByteSize,
    pub machine: MachineProfile,
    /// Whether the page cache may serve what fits.
    pub mapping: bool,
    /// What contexts take, by llama.cpp's own count; those of other types are estimated.
    pub contexts: Vec<(KvTypes, ContextSize)>,
}

impl<'a> Scene<'a> {
    /// Looks at the machine, and asks llama.cpp what contexts take, where a decision hangs on it.
    pub fn of(header: &'a Header, options: &'a Options) -> Self {
        let file = &header.file;
        let tokens = context_tokens(file, options.context.tokens);
        let available = available_memory();
        let batch = options.context.batch.clamp(1, tokens);
        let ubatch =
            options.context.ubatch.unwrap_or_else(|| auto_ubatch(file, tokens, available)).clamp(1, batch);
        let contexts = asked_contexts(file, options, (tokens, ubatch), available);
        Self {
            options,
            written: header.written.as_ref(),
            file,
            tokens,
            batch,
            ubatch,
            available,
            machine: machine_for(file, options, available),
            mapping: asks_for_reading(options).is_none(),
            contexts,
        }
    }

    /// Memory that the context takes beside the weights.
    pub fn context(&self, kv_type: KvTypes) -> ByteSize {
        self.measured_context(kv_type).unwrap_or_else(|| self.estimated_context(kv_type)).total()
    }

    /// The same by llama.cpp's own count, where it was asked.
    pub fn measured_context(&self, kv_type: KvTypes) -> Option<ContextSize> {
        self.contexts.iter().find(|(ty, _)| *ty == kv_type).map(|(_, context)| *context)
    }

    /// Each slot has a cache of its own; they are computed in graphs of the same size.
    pub fn estimated_context(&self, kv_type: KvTypes) -> ContextSize {
        let one = context_size(self.file, self.tokens, kv_type, self.ubatch, self.options.context.outputs);
        ContextSize {
            cache: ByteSize(one.cache.bytes().saturating_mul(self.options.context.slots().into())),
            ..one
        }
    }

    /// RAM as the sets of `--manage` see it.
    pub fn memory(&self) -> Machine {
        Machine { ram_available: self.machine.memory.available }
    }
}

/// The machine as the decision needs it: where everything fits, or llama.cpp does as it does, there is none, and nobody has to
/// wait for a probe.
fn machine_for(file: &ModelFile, options: &Options, available: ByteSize) -> MachineProfile {
    let machine = if decides(file, options, available) { machine_profile(file) } else { known_machine(file) };
    let machine = match options.hot.cache {
        // Not for layers.
        HotCacheChoice::Bytes(bytes) => machine.without_on_devices(bytes),
        _ => machine,
    };
    match options.devices.split_mode {
        SplitMode::Layer => machine,
        SplitMode::Tensor => machine.with_split_devices(),
    }
}

/// What llama.cpp says of contexts of `tokens` tokens in graphs of at most `ubatch`, for each type of keys and values that may
/// be chosen. Nothing where no decision hangs on how much memory they leave, and of what has to be estimated.
fn asked_contexts(
    file: &ModelFile,
    options: &Options,
    (tokens, ubatch): (u32, u32),
    available: ByteSize,
) -> Vec<(KvTypes, ContextSize)> {
    if !decides(file, options, available) {
        return Vec::new();
    }
    // Its vocabulary is not kept beside the model's own.
    let Some(header) = HeaderModel::read(&options.model) else { return Vec::new() };
    let types: &[KvTypes] = match &options.context.kv_type {
        KvChoice::Types(ty) => std::slice::from_ref(ty),
        KvChoice::Auto => &AUTO_KV_TYPES,
    };
    let context = |&ty: &KvTypes| {
        Some((ty, header.slots(options.context.slots(), tokens, ty, ubatch, options.context.outputs)?))
    };
    types.iter().filter_map(context).collect()
}

/// Whether there is anything to decide that is worth a look at the machine.
fn decides(file: &ModelFile, options: &Options, available: ByteSize) -> bool {
    let room = match options.placement.ram_budget {
        Budget::Auto => available.saturating_sub(auto_reserve(available)),
        Budget::Bytes(budget) => budget,
    };
    let auto = options.placement.stream == Manage::Auto && options.placement.plan.is_none();
    let fits = auto && file.size() <= room;
    options.mode == Mode::Terrace && !fits && file.size() >= WORTH_PROBING
}

/// By which choice the caller says how weights are read, or that their uses are to be seen: the page cache is then
/// not for them.
pub fn asks_for_reading(options: &Options) -> Option<ReadingChoice> {
    [
        (!options.placement.mapping, ReadingChoice::Unmapped),
        (options.io.engine != IoChoice::Auto, ReadingChoice::Engine),
        (options.io.direct != DirectChoice::Auto, ReadingChoice::Direct),
        (options.testing.faults.is_some(), ReadingChoice::Faults),
        (options.reload.allowed, ReadingChoice::Reloads),
    ]
    .into_iter()
    .find_map(|(given, choice)| given.then_some(choice))
}
