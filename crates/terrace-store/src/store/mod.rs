//! The store: what it is made of, what it says of itself, and closing it.
//!
//! Each file beside this one adds its verbs to [`Store`] and has the state that only they need. The store holds that state,
//! so this file and those name each other; they do not name one another but for types.

mod activity;
mod background;
mod copy;
mod counters;
mod eviction;
mod fetching;
mod fill;
mod loads;
mod open;
mod read_into;
mod recording;
mod replace;
mod resize;
mod room;
mod speculation;
mod tuned;

pub use activity::Computing;
pub use read_into::ReadInto;

use crate::block::{BlockId, BlockSpec, Hull};
use crate::buffers::Mapping;
use crate::clock::Clock;
use crate::inflight::Flights;
use crate::io::{Completion, Files, IoEngine};
use crate::ranges::{GRANULE, Ranges};
use crate::slots::{SlotState, Slots};
use crate::stats::{BusyClock, EngineInfo, LayerStats, StoreStats};
use crate::timeline::Timeline;
use activity::Activity;
use background::Background;
use counters::Counters;
use eviction::EvictionOrder;
use fill::Fill;
use read_into::CallerReads;
use resize::Resize;
use speculation::Speculation;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use terrace_model::{ByteSize, Extent};

/// Brings blocks of a model's files into a bounded arena, and keeps the ones that pay.
pub struct Store {
    blocks: Vec<BlockSpec>,
    files: Files,
    engine: Box<dyn IoEngine>,
    info: EngineInfo,
    budget: ByteSize,
    /// Bytes of the largest request, a multiple of the granule.
    request_size: u64,
    mapping: Arc<Mapping>,
    ranges: Ranges,
    resize: Resize,
    bounce: Arc<Mapping>,
    bounce_ranges: Ranges,
    slots: Slots,
    order: EvictionOrder,
    flights: Flights,
    /// Loading blocks with bytes that the engine was not given yet.
    backlog: VecDeque<BlockId>,
    caller: CallerReads,
    background: Background,
    speculation: Speculation,
    fill: Fill,
    /// Reused: what the engine reports.
    completions: Vec<Completion>,
    /// Reused: generations of the leases that `start` takes ahead.
    ahead: Vec<Option<u32>>,
    counters: Counters,
    timeline: Option<Timeline>,
    /// What the consumer computes, while it does.
    activity: Option<Activity>,
    /// Anything is in flight.
    busy: BusyClock,
    /// Anything is in flight that was asked for.
    demand: BusyClock,
    clock: Clock,
}

impl Store {
    /// Whether the block's bytes are in RAM.
    pub fn is_resident(&self, block: BlockId) -> bool {
        block.index() < self.blocks.len() && matches!(self.slots.state(block), SlotState::Resident { .. })
    }

    /// Whether the block's bytes are in RAM or on their way.
    pub(crate) fn has_slot(&self, block: BlockId) -> bool {
        !matches!(self.slots.state(block), SlotState::Empty)
    }

    /// Bytes of all slots together, as the budget is now.
    pub fn capacity(&self) -> ByteSize {
        ByteSize(self.ranges.limit())
    }

    /// Bytes of the budget that the block's slot takes: its hull in whole pages.
    ///
    /// # Panics
    /// If the store has no such block.
    pub fn slot_size(&self, block: BlockId) -> ByteSize {
        ByteSize(slot_len(self.blocks[block.index()].extent, self.files.align))
    }

    /// The smallest budget that can hold every block, one at a time.
    pub fn min_budget(&self) -> ByteSize {
        let sizes = self.blocks.iter().map(|block| slot_len(block.extent, self.files.align));
        ByteSize(sizes.max().unwrap_or(0))
    }

    /// What a block is.
    ///
    /// # Panics
    /// If the store has no such block.
    pub fn spec(&self, block: BlockId) -> &BlockSpec {
        &self.blocks[block.index()]
    }

    /// What reads the files, and why.
    pub fn engine(&self) -> EngineInfo {
        self.info.clone()
    }

    /// What the store did since it was opened or [`Store::reset_stats`].
    pub fn stats(&self) -> StoreStats {
        let now = self.clock.now();
        StoreStats {
            io_busy: self.busy.total_at(now),
            demand_busy: self.demand.total_at(now),
            resident: ByteSize(self.ranges.used()),
            resident_blocks: self.slots.resident,
            blocks: self.blocks.len() as u64,
            budget: self.budget,
            capacity: self.capacity(),
            ..self.counters.total
        }
    }

    /// The same by layer, in the order of layers; what belongs to none comes last.
    pub fn layer_stats(&self) -> &[LayerStats] {
        self.counters.layers()
    }

    /// Counts from zero again. What is resident stays.
    pub fn reset_stats(&mut self) {
        let now = self.clock.now();
        self.counters.reset(now);
        self.busy.reset(now);
        self.demand.reset(now);
        self.activity = None;
    }

    fn hull(&self, block: BlockId) -> Hull {
        Hull::of(self.blocks[block.index()].extent, self.files.align)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("engine", &self.info)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.backlog.clear();
        self.background.partial = None;
        self.drop_guesses();
        self.stop_filling();
        while self.flights.in_flight() > 0 {
            if let Err(error) = self.drive(true) {
                // The kernel may still write to the windows: they, and with them the mappings, are given up for lost.
                tracing::error!(%error, "reads could not be waited for; their memory is leaked");
                std::mem::forget(std::mem::take(&mut self.flights));
            }
        }
    }
}

/// Bytes that the slot of an extent takes.
fn slot_len(extent: Extent, align: u64) -> u64 {
    Hull::of(extent, align).len.next_multiple_of(GRANULE)
}
