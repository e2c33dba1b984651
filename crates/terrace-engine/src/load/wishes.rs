//! Turns a caller's options into wishes for the plan.

use crate::options::Options;
use crate::unfit::ReadingChoice;
use terrace_backend::Sending;
use terrace_ggml::pin::scheduler::OFFLOAD_MIN_BATCH;
use terrace_model::{ByteSize, SplitMode};
use terrace_plan::drafts::RIGHT;
use terrace_plan::options::Mmap;
use terrace_plan::{Budget, ByDevice, Eviction, HotSize, PerDevice, PrefillPaths, Wishes};
use terrace_store::{DirectChoice, IoChoice, PolicyKind, lookahead_bytes};

/// The first option that controls how weights are read, or needs to see their uses; it rules out
/// the page cache.
pub fn reading_choice(options: &Options) -> Option<ReadingChoice> {
    [
        (options.memory.mmap == Mmap::Off, ReadingChoice::Unmapped),
        (options.io.io != IoChoice::Auto, ReadingChoice::Engine),
        (options.io.direct != DirectChoice::Auto, ReadingChoice::Direct),
        (options.testing.inject_fault.is_some(), ReadingChoice::Faults),
        (options.reload.allowed, ReadingChoice::Reloads),
        (options.io.verify, ReadingChoice::Verify),
        (!options.replicas.replica.is_empty(), ReadingChoice::Replicas),
    ]
    .into_iter()
    .find_map(|(given, choice)| given.then_some(choice))
}

/// The wishes that options express. The caller adds the contents of a plan file and the measured
/// contexts.
pub fn wishes_of(options: &Options) -> Wishes {
    let traced = options.record.trace.is_some();
    let reserve = |PerDevice { device, value }| PerDevice { device, value: Some(value) };
    let reserves: Vec<_> = options.devices.vram_reserve.iter().cloned().map(reserve).collect();
    Wishes {
        written: None,
        manage: options.memory.manage(),
        rules: options.memory.override_tensor.clone(),
        ram_budget: options.memory.ram_budget,
        prompt_cache: options.prompt_cache.cache_ram,
        slots_share: options.cache.slots_share,
        mapping: reading_choice(options).is_none(),
        devices: options.devices.usable().map(<[String]>::to_vec),
        vram_budget: ByDevice::of(&options.devices.vram_budget, Budget::Auto),
        vram_reserve: ByDevice::of(&reserves, None),
        device_layers: options.devices.n_gpu_layers,
        host_experts: options.devices.host_experts(),
        split: options.devices.split_mode == SplitMode::Tensor,
        hot_cache: match traced {
            // Recorded traces are replayed without devices.
            true => ByDevice::all(HotSize::Off),
            false => ByDevice::of(&options.hot.hot_cache, HotSize::Auto),
        },
        hot_split: options.hot.hot_split,
        context: options.context.ctx,
        slots: options.context.slots(),
        embedding: None,
        kv_type: options.context.kv_choice(),
        kv_offload: options.context.kv_offload,
        batch: options.context.batch,
        ubatch: options.context.ubatch,
        outputs: options.context.outputs,
        expected: options.estimates.expected(),
        paths: PrefillPaths {
            offload: options.devices.op_offload.then_some(OFFLOAD_MIN_BATCH),
            streamed: options.devices.op_offload && options.testing.sending != Sending::Off && !traced,
            ..PrefillPaths::default()
        },
        clients: 1,
        hits: options.estimates.hits.curve(),
        drafts_right: options.estimates.expect_right.unwrap_or(RIGHT),
        eviction: eviction(&options.cache.cache_policy),
        // Where slots are few, guesses get less.
        lookahead: lookahead_bytes(options.cache.lookahead, ByteSize(u64::MAX)),
        measured: Vec::new(),
    }
}

/// What a policy evicts, as estimates see it.
const fn eviction(policy: &PolicyKind) -> Eviction {
    match policy {
        // Not worse, and better only where a token's experts have no room.
        PolicyKind::Lru | PolicyKind::Auto => Eviction::Oldest,
        PolicyKind::PerLayer => Eviction::OldestOfLayer,
        PolicyKind::Lfru | PolicyKind::Lfu | PolicyKind::Static(_) => Eviction::Rarest,
    }
}
