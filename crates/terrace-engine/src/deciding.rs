//! Whether a load needs to know more of the machine and of the model than their descriptions say.

use crate::context_ask::HeaderModel;
use crate::hot_cache::HotCacheChoice;
use crate::machine::{known_machine, machine_profile};
use crate::options::{KvChoice, Mode, Options};
use crate::placing::AUTO_KV_TYPES;
use terrace_ggml::llama::SplitMode;
use terrace_model::KvType;
use terrace_model::{ByteSize, ModelFile};
use terrace_plan::{Budget, ContextSize, MachineProfile, Manage, auto_reserve};

/// Models below this size are not worth a probe, which itself takes up to 128 MiB for a moment: that would be most of what a
/// small model's run has resident.
const WORTH_PROBING: ByteSize = ByteSize::gib(1);

/// The machine as the decision needs it: where everything fits, or llama.cpp does as it does, there is none, and nobody has to
/// wait for a probe.
pub fn machine_for(file: &ModelFile, options: &Options, available: ByteSize) -> MachineProfile {
    let machine = if decides(file, options, available) { machine_profile(file) } else { known_machine(file) };
    let machine = match options.hot_cache {
        // Not for layers.
        HotCacheChoice::Bytes(bytes) => machine.without_on_devices(bytes),
        _ => machine,
    };
    match options.split_mode {
        SplitMode::Layer => machine,
        SplitMode::Tensor => machine.with_split_devices(),
    }
}

/// What llama.cpp says of contexts of `tokens` tokens in graphs of at most `ubatch`, for each type of keys and values that may
/// be chosen. Nothing where no decision hangs on how much memory they leave, and of what has to be estimated.
pub fn asked_contexts(
    file: &ModelFile,
    options: &Options,
    (tokens, ubatch): (u32, u32),
    available: ByteSize,
) -> Vec<(KvType, ContextSize)> {
    if !decides(file, options, available) {
        return Vec::new();
    }
    // Its vocabulary is not kept beside the model's own.
    let Some(header) = HeaderModel::read(&options.model) else { return Vec::new() };
    let types: &[KvType] = match &options.kv_type {
        KvChoice::Type(ty) => std::slice::from_ref(ty),
        KvChoice::Auto => &AUTO_KV_TYPES,
    };
    let context =
        |&ty: &KvType| Some((ty, header.slots(options.slots(), tokens, ty, ubatch, options.outputs)?));
    types.iter().filter_map(context).collect()
}

/// Whether there is anything to decide that is worth a look at the machine.
fn decides(file: &ModelFile, options: &Options, available: ByteSize) -> bool {
    let room = match options.ram_budget {
        Budget::Auto => available.saturating_sub(auto_reserve(available)),
        Budget::Bytes(budget) => budget,
    };
    let auto = options.manage == Manage::Auto && options.plan.is_none();
    let fits = auto && file.size() <= room;
    options.mode == Mode::Terrace && !fits && file.size() >= WORTH_PROBING
}
