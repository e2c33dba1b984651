//! Turns a caller's options into wishes for the plan.

use crate::options::{HotOptions, KernelChoice, Mmap, Mode, Options};
use crate::unfit::ReadingChoice;
use terrace_ggml::pin::scheduler::OFFLOAD_MIN_BATCH;
use terrace_lanes::Sending;
use terrace_model::ByteSize;
use terrace_plan::drafts::RIGHT;
use terrace_plan::machine::Kernels;
use terrace_plan::{Eviction, HotSize, PerDevice, PrefillPaths, Wishes};
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

/// The kernels that the processor computes with.
pub fn kernels_of(options: &Options) -> Kernels {
    match (options.mode, options.kernels.kernels) {
        (Mode::Terrace, KernelChoice::Fast) => Kernels::Fast,
        _ => Kernels::Exact,
    }
}

/// The wishes that options express. The caller adds the contents of a plan file and the measured
/// contexts.
pub fn wishes_of(options: &Options) -> Wishes {
    let traced = options.record.trace.is_some();
    // Recorded traces are replayed without devices.
    let without_copies = || HotOptions { hot_cache: PerDevice::all(HotSize::Off), ..options.hot.clone() };
    Wishes {
        written: None,
        memory: options.memory.clone(),
        devices: options.devices.clone(),
        hot: if traced { without_copies() } else { options.hot.clone() },
        context: options.context,
        prompt_cache: options.prompt_cache.cache_ram,
        slots_share: options.cache.slots_share,
        mapping: reading_choice(options).is_none(),
        embedding: None,
        expected: options.estimates.expected(),
        given: None,
        paths: PrefillPaths {
            offload: options.devices.op_offload.then_some(OFFLOAD_MIN_BATCH),
            streamed: options.devices.op_offload && options.testing.sending != Sending::Off && !traced,
            ..PrefillPaths::default()
        },
        clients: options.context.clients.max(1),
        hits: options.estimates.hits.curve(),
        drafts_right: options.estimates.expect_right.unwrap_or(RIGHT),
        eviction: eviction(&options.cache.cache_policy).in_passes_of(options.context.clients),
        // Where slots are few, guesses get less.
        lookahead: lookahead_bytes(options.cache.lookahead, ByteSize(u64::MAX)),
        measured: Vec::new(),
        cold: 0.0,
    }
}

/// Eviction by a policy, as estimates see it.
const fn eviction(policy: &PolicyKind) -> Eviction {
    match policy {
        // Not worse, and better only where a token's experts have no room.
        PolicyKind::Lru | PolicyKind::Auto => Eviction::Oldest,
        PolicyKind::PerLayer => Eviction::OldestOfLayer,
        PolicyKind::Lfru | PolicyKind::Lfu | PolicyKind::Static(_) => Eviction::Rarest,
    }
}
