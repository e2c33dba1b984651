//! Turns a caller's options into wishes for the plan.

use crate::options::Options;
use crate::unfit::ReadingChoice;
use terrace_backend::Sending;
use terrace_ggml::llama::SplitMode;
use terrace_ggml::pin::scheduler::OFFLOAD_MIN_BATCH;
use terrace_model::ByteSize;
use terrace_plan::drafts::RIGHT;
use terrace_plan::{ByDevice, Eviction, HotSize, PrefillPaths, Wishes};
use terrace_store::{DirectChoice, IoChoice, PolicyKind, lookahead_bytes};

/// The first option that controls how weights are read, or needs to see their uses; it rules out
/// the page cache.
pub fn reading_choice(options: &Options) -> Option<ReadingChoice> {
    [
        (!options.placement.mapping, ReadingChoice::Unmapped),
        (options.io.engine != IoChoice::Auto, ReadingChoice::Engine),
        (options.io.direct != DirectChoice::Auto, ReadingChoice::Direct),
        (options.testing.faults.is_some(), ReadingChoice::Faults),
        (options.reload.allowed, ReadingChoice::Reloads),
        (options.io.verify, ReadingChoice::Verify),
        (!options.io.replicas.is_empty(), ReadingChoice::Replicas),
    ]
    .into_iter()
    .find_map(|(given, choice)| given.then_some(choice))
}

/// The wishes that options express. The caller adds the contents of a plan file and the measured
/// contexts.
pub fn wishes_of(options: &Options) -> Wishes {
    let traced = options.record.trace.is_some();
    Wishes {
        written: None,
        manage: options.placement.stream,
        rules: options.placement.rules.clone(),
        ram_budget: options.placement.ram_budget,
        prompt_cache: options.prompt_cache.ram,
        slots_share: options.cache.slots_share,
        mapping: reading_choice(options).is_none(),
        devices: options.devices.only.clone(),
        vram_budget: options.devices.vram_budget.clone(),
        vram_reserve: options.devices.vram_reserve.clone(),
        device_layers: options.devices.layers,
        host_experts: options.devices.host_experts,
        split: options.devices.split_mode == SplitMode::Tensor,
        hot_cache: match traced {
            // Recorded traces are replayed without devices.
            true => ByDevice::all(HotSize::Off),
            false => options.hot.cache.clone(),
        },
        hot_split: options.hot.split,
        context: options.context.tokens,
        slots: options.context.slots(),
        embedding: None,
        kv_type: options.context.kv_type,
        kv_offload: options.context.kv_offload,
        batch: options.context.batch,
        ubatch: options.context.ubatch,
        outputs: options.context.outputs,
        expected: options.estimates.expected,
        paths: PrefillPaths {
            offload: options.devices.op_offload.then_some(OFFLOAD_MIN_BATCH),
            streamed: options.devices.op_offload && options.hot.sending != Sending::Off && !traced,
            ..PrefillPaths::default()
        },
        clients: 1,
        hits: options.estimates.hits.clone(),
        drafts_right: options.estimates.drafts_right.unwrap_or(RIGHT),
        eviction: eviction(&options.cache.policy),
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
