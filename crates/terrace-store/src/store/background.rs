//! Background reads, which nothing waits for: which of them are passed to the engine, and when.
//!
//! Demand has priority. A request that the disk has cannot be cancelled, so background requests in
//! flight delay a demand that comes after them.

use super::Store;
use crate::block::BlockId;
use crate::purpose::Purpose;
use crate::slots::Failure;

/// Background requests are only sent while at most this many demands are in flight. A disk with one
/// or two requests has capacity for more; with a longer queue, demands would also wait for
/// background requests.
const DEMAND_BESIDE: usize = 2;

/// The state of background reads.
#[derive(Debug)]
pub(super) struct Background {
    /// The block of which the engine has only a part so far.
    pub partial: Option<BlockId>,
    /// Most requests in flight: half of the engine's depth, so that demand always has room.
    most_requests: usize,
    /// No filling request is sent while this many bytes are in flight.
    most_fill_bytes: u64,
    /// True if a failure was logged, which happens once.
    complained: bool,
    /// True if background reads are paused.
    pub paused: bool,
}

impl Background {
    pub fn new(queue_depth: u32, most_fill_bytes: u64) -> Self {
        let most_requests = (queue_depth as usize / 2).max(1);
        Self { partial: None, most_requests, most_fill_bytes, complained: false, paused: false }
    }
}

impl Store {
    /// Sends background reads if demand leaves the engine idle.
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

    /// Returns whether anything is left to be read in the background.
    pub(super) fn any_in_background(&self) -> bool {
        self.background.partial.is_some() || self.any_guess_waits() || self.any_left_to_fill()
    }

    fn next_in_background(&mut self) -> Option<BlockId> {
        self.background.partial.or_else(|| self.next_guess()).or_else(|| self.next_to_fill())
    }

    /// Notes that the block was requested: what the engine does not have of it yet becomes demand.
    pub(super) fn promote(&mut self, block: BlockId) {
        if self.background.partial == Some(block) {
            self.background.partial = None;
            self.backlog.push_back(block);
        }
    }

    /// Counts a failed background read. Nothing waited for it, so no error is returned; a later
    /// demand fails by itself.
    pub(super) fn background_failed(&mut self, block: BlockId, failure: Failure) {
        self.counters.total.background_failures += 1;
        if !std::mem::replace(&mut self.background.complained, true) {
            let spec = &self.blocks[block.index()];
            let error = self.read_error(spec.to_string(), spec.extent, failure);
            let purpose = self.order.purpose(block).name();
            tracing::warn!(purpose, "a background read failed (further failures are only counted): {error}");
        }
    }
}
