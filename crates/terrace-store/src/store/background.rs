//! Reads that nothing waits for: which of them the engine gets, and when.
//!
//! Demand goes first. A request that the disk has cannot be taken back, so what is in flight in the background is what
//! delays a demand that comes in between.

use super::Store;
use crate::block::BlockId;
use crate::purpose::Purpose;
use crate::slots::Failure;

/// Demand requests in flight up to which the engine gets background ones beside them. A disk with a request or two has
/// room for more; with a longer queue, what waits for its end would wait for ours as well.
const DEMAND_BESIDE: usize = 2;

/// What the background is doing.
#[derive(Debug)]
pub(super) struct Background {
    /// The block of which the engine has a part and not yet all.
    pub partial: Option<BlockId>,
    /// Requests in flight at most: half of the engine's, so that demand always finds a place.
    most_requests: usize,
    /// Bytes in flight from which on no filling request follows.
    most_fill_bytes: u64,
    /// A failure was logged: once is enough.
    complained: bool,
    /// Nothing more goes to the engine for now.
    pub paused: bool,
}

impl Background {
    pub fn new(queue_depth: u32, most_fill_bytes: u64) -> Self {
        let most_requests = (queue_depth as usize / 2).max(1);
        Self { partial: None, most_requests, most_fill_bytes, complained: false, paused: false }
    }
}

impl Store {
    /// Gives the engine background reads, if demand leaves it idle.
    pub(super) fn feed_background(&mut self) {
        loop {
            let busy = self.flights.background() >= self.background.most_requests
                || self.flights.demand() > DEMAND_BESIDE
                || self.flights.is_full();
            if busy || self.background.paused || self.caller.is_running() {
                return;
            }
            let Some(block) = self.next_in_background() else { return };
            let fill = self.order.purpose(block) == Purpose::Fill;
            self.background.partial = Some(block);
            if fill && self.flights.background_bytes() >= self.background.most_fill_bytes {
                return;
            }
            self.push_part(block);
            if self.background.partial == Some(block) && self.is_pushed(block) {
                self.background.partial = None;
            }
        }
    }

    /// Whether anything waits to be read in the background.
    pub(super) fn any_in_background(&self) -> bool {
        self.background.partial.is_some() || self.any_guess_waits() || self.any_left_to_fill()
    }

    fn next_in_background(&mut self) -> Option<BlockId> {
        self.background.partial.or_else(|| self.next_guess()).or_else(|| self.next_to_fill())
    }

    /// The block is asked for: what the engine has not got of it is demand now.
    pub(super) fn promote(&mut self, block: BlockId) {
        if self.background.partial == Some(block) {
            self.background.partial = None;
            self.backlog.push_back(block);
        }
    }

    /// A background read failed. Nothing waited for it, so nothing is told; a later demand meets its own failure.
    pub(super) fn background_failed(&mut self, block: BlockId, failure: Failure) {
        self.counters.total.background_failures += 1;
        if !std::mem::replace(&mut self.background.complained, true) {
            let spec = &self.blocks[block.index()];
            let error = self.read_error(spec.to_string(), spec.extent, failure);
            let purpose = self.order.purpose(block).name();
            tracing::warn!(
                purpose,
                "a background read failed (further failures are only counted): {error}"
            );
        }
    }
}
