//! The store: its parts, what it reports about itself, and closing it.
//!
//! Each other file of this folder adds methods to [`Store`], and has the state that only these
//! need. The store holds that state, so this file and the others import each other; among
//! themselves the others only share types.

mod activity;
mod background;
mod copy;
mod counters;
mod disks;
mod elsewhere;
mod eviction;
mod fetching;
mod fill;
mod loads;
mod open;
#[cfg(test)]
mod paced_tests;
mod read_into;
mod recording;
mod replace;
mod resize;
mod room;
mod rows;
mod speculation;
mod sums;
#[cfg(test)]
mod threads_tests;
mod tuned;
mod verify;

pub use activity::Computing;
pub use read_into::ReadInto;
pub(crate) use sums::{Again, Sum};

use crate::block::{BlockId, BlockSpec, Hull};
use crate::buffers::Mapping;
use crate::clock::Clock;
use crate::inflight::Flights;
use crate::io::{Completion, Copies, Files, IoEngine};
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
use rows::Rows;
use speculation::Speculation;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use terrace_model::{ByteSize, Extent};
use verify::Verify;

/// Reads blocks of a model's files into a bounded arena, and keeps those that are worth their room.
pub struct Store {
    blocks: Vec<BlockSpec>,
    files: Files,
    copies: Copies,
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
    /// Offset in the arena from which on nothing was read into a slot since that memory was given back, if it
    /// was.
    touched: u64,
    /// Loading blocks with bytes that were not passed to the engine yet.
    backlog: VecDeque<BlockId>,
    caller: CallerReads,
    rows: Rows,
    background: Background,
    speculation: Speculation,
    fill: Fill,
    /// `None` if nothing is compared with checksums.
    verify: Option<Verify>,
    /// The engine's completions, kept for its memory.
    completions: Vec<Completion>,
    /// Generations of the leases that `start` takes ahead, kept for its memory.
    ahead: Vec<Option<u32>>,
    counters: Counters,
    timeline: Option<Timeline>,
    /// Time that the consumer has waited for devices.
    device_wait: Duration,
    /// The consumer's current activity.
    activity: Option<Activity>,
    /// Time with any request in flight.
    busy: BusyClock,
    /// Time with a demand in flight.
    demand: BusyClock,
    clock: Clock,
}

impl Store {
    /// Returns whether the block's bytes are in RAM.
    pub fn is_resident(&self, block: BlockId) -> bool {
        block.index() < self.blocks.len() && matches!(self.slots.state(block), SlotState::Resident { .. })
    }

    /// Returns how long [`next`](Self::next) and [`read_into`](Self::read_into) have waited for I/O so
    /// far, which is [`StoreStats::stall`].
    pub fn stalled(&self) -> Duration {
        self.counters.total.stall
    }

    /// Returns whether the block is being read.
    pub fn is_being_read(&self, block: BlockId) -> bool {
        block.index() < self.blocks.len() && matches!(self.slots.state(block), SlotState::Loading { .. })
    }

    /// Returns whether the block's bytes are in RAM or being read.
    pub(crate) fn has_slot(&self, block: BlockId) -> bool {
        !matches!(self.slots.state(block), SlotState::Empty)
    }

    /// Returns the bytes of all slots together, by the current budget.
    pub fn capacity(&self) -> ByteSize {
        ByteSize(self.ranges.limit())
    }

    /// Returns the bytes of the budget that the block's slot takes: its hull in whole pages.
    ///
    /// # Panics
    /// If the store does not have the block.
    pub fn slot_size(&self, block: BlockId) -> ByteSize {
        ByteSize(slot_len(self.blocks[block.index()].extent, self.files.align))
    }

    /// Returns the smallest budget that can hold every block, one at a time.
    pub fn min_budget(&self) -> ByteSize {
        let sizes = self.blocks.iter().map(|block| slot_len(block.extent, self.files.align));
        ByteSize(sizes.max().unwrap_or(0))
    }

    /// Has these blocks evicted before all others once they are not needed any more, however they are
    /// used. To be called before any of them is requested.
    ///
    /// # Panics
    /// If the store does not have the blocks.
    pub fn pass(&mut self, blocks: Range<BlockId>) {
        self.order.pass(blocks);
    }

    /// Has blocks that are requested from the next token on evicted only where no other block can be, or ends that:
    /// for a token that is computed twice. What only its second pass requests does not stay.
    pub fn hold(&mut self, on: bool) {
        self.order.hold(on);
    }

    /// Returns the description of a block.
    ///
    /// # Panics
    /// If the store does not have the block.
    pub fn spec(&self, block: BlockId) -> &BlockSpec {
        &self.blocks[block.index()]
    }

    /// Returns the engine that reads the files, and why it is used.
    pub fn engine(&self) -> EngineInfo {
        self.info.clone()
    }

    /// Returns the counters since the store was opened or [`Store::reset_stats`] was called.
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

    /// Returns the counters by layer, in the order of layers; blocks outside of layers come last.
    pub fn layer_stats(&self) -> &[LayerStats] {
        self.counters.layers()
    }

    /// Resets the counters to zero. Resident blocks stay.
    pub fn reset_stats(&mut self) {
        let now = self.clock.now();
        self.counters.reset(now);
        self.busy.reset(now);
        self.demand.reset(now);
        self.copies.reset_stats();
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
        self.rows.drop_pending();
        self.background.partial = None;
        self.drop_guesses();
        self.stop_filling();
        while self.flights.in_flight() > 0 {
            if let Err(error) = self.drive(true) {
                // The kernel may still write to the windows, so these are leaked, and the mappings
                // with them.
                tracing::error!(%error, "reads could not be waited for; their memory is leaked");
                std::mem::forget(std::mem::take(&mut self.flights));
            }
        }
    }
}

/// Returns the bytes that the slot of an extent takes.
fn slot_len(extent: Extent, align: u64) -> u64 {
    Hull::of(extent, align).len.next_multiple_of(GRANULE)
}
