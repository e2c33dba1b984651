//! A budget that changes while the store works.
//!
//! The arena keeps its addresses. A smaller budget is a limit within it: nothing is placed beyond it any more. Blocks are evicted in
//! their order until the others fit, those of them that lie beyond the limit are copied into holes before it, and
//! what is then beyond it goes back to the system as one piece. So no hole keeps RAM, and huge pages go whole: giving back
//! the slots of the blocks that went, wherever they were, would tear most huge pages, and the next blocks would be read into
//! other holes than these.
//!
//! What is leased or on its way stays where it is, and follows when it can.

use super::Store;
use crate::block::BlockId;
use crate::budget::{BudgetHandle, Shared};
use crate::ranges::{GRANULE, Place};
use std::sync::Arc;
use terrace_model::ByteSize;

/// A huge page, in bytes. Limits of large arenas are multiples, so that none is torn.
const HUGE: u64 = 2 << 20;
/// From this on, rounding down to huge pages costs 3 % at most.
const LARGE: u64 = 32 * HUGE;

/// How the arena follows its budget.
#[derive(Debug)]
pub(super) struct Resize {
    shared: Arc<Shared>,
    /// What of it was taken notice of.
    heeded: u64,
    /// Blocks beyond the limit, and perhaps some that were.
    beyond: Vec<BlockId>,
    /// The limit when the graph began, if it was higher.
    overdraft: Option<u64>,
    /// It was logged that memory could not be given back: once is enough.
    complained: bool,
}

impl Resize {
    pub fn new(most: u64) -> Self {
        Self {
            shared: Shared::new(most),
            heeded: most,
            beyond: Vec::new(),
            overdraft: None,
            complained: false,
        }
    }
}

impl Store {
    /// Makes a handle for changing the budget from outside. `least`: what the consumer can work with; at least the largest block.
    pub fn budget_handle(&self, least: ByteSize) -> BudgetHandle {
        let least = least.max(self.min_budget()).bytes();
        // The limit is rounded down to whole pages.
        let page = if least >= LARGE { HUGE } else { GRANULE };
        BudgetHandle::new(&self.resize.shared, least.saturating_add(page))
    }

    /// Keeps to the budget as it is now. An atomic load where nothing has changed.
    pub(super) fn heed_budget(&mut self) {
        let wanted = self.resize.shared.wanted();
        if wanted != self.resize.heeded {
            self.resize.heeded = wanted;
            self.resize(wanted);
        } else if !self.resize.beyond.is_empty() {
            self.settle(false);
        }
    }

    /// The leases of the last graph are over: the limit holds without exception.
    pub(super) fn end_overdraft(&mut self) {
        self.resize.overdraft = None;
    }

    /// Where the leases of this graph leave no room because they were taken under a larger budget, that one holds for what
    /// has to be placed all the same: the consumer counted on it.
    pub(super) fn overdraw(&mut self, place: impl FnOnce(&mut Self) -> usize) -> usize {
        let Some(before) = self.resize.overdraft else { return 0 };
        let limit = self.ranges.limit();
        self.ranges.set_limit(limit.max(before));
        let placed = place(self);
        self.ranges.set_limit(limit);
        self.note_behind();
        placed
    }

    /// Staging memory is free again.
    pub(super) fn free_staging(&mut self, place: Place) {
        self.ranges.free(place);
        if place.end() > self.ranges.limit() {
            self.give_back();
        }
    }

    #[cold]
    fn resize(&mut self, wanted: u64) {
        let before = self.ranges.limit();
        let limit = self.limit_for(wanted);
        self.ranges.set_limit(limit);
        if limit < before {
            self.counters.total.shrinks += 1;
            self.resize.overdraft = self.resize.overdraft.max(Some(before));
            self.note_behind();
        } else if limit > before {
            self.counters.total.grows += 1;
        }
        self.settle(true);
    }

    /// The largest limit within the budget at which no page is cut.
    fn limit_for(&self, wanted: u64) -> u64 {
        let page = if wanted >= LARGE { HUGE } else { GRANULE };
        if wanted >= self.ranges.len() {
            return self.ranges.len();
        }
        // Pages are where the addresses are multiples.
        wanted - (self.mapping.address(wanted) as u64) % page
    }

    fn note_behind(&mut self) {
        self.resize.beyond.clear();
        self.resize.beyond.extend(self.slots.beyond(self.ranges.limit()));
    }

    /// Brings about what the limit asks for, as far as leases and reads allow.
    #[cold]
    fn settle(&mut self, first: bool) {
        while self.ranges.used() > self.ranges.limit() {
            let Some(victim) = self.order.first_out(&self.slots, &self.ranges) else { break };
            if self.evict(victim).is_none() {
                break;
            }
        }
        let mut beyond = std::mem::take(&mut self.resize.beyond);
        let before = beyond.len();
        beyond.retain(|block| !self.bring_before(*block));
        let progress = beyond.len() < before;
        self.resize.beyond = beyond;
        if progress || (first && self.ranges.high() > self.ranges.limit()) {
            self.give_back();
        }
        self.tell_held();
    }

    /// Moves the block to before the limit, or evicts it if it is the next to go. False if it has to stay for now.
    fn bring_before(&mut self, block: BlockId) -> bool {
        let limit = self.ranges.limit();
        loop {
            let state = self.slots.state(block);
            if state.place().is_none_or(|place| place.end() <= limit) {
                return true;
            }
            let Some(from) = self.slots.evictable(block) else { return false };
            if let Some(to) = self.ranges.alloc(from.len) {
                self.mapping.copy(from, to);
                self.slots.moved(block, to);
                self.ranges.free(from);
                return true;
            }
            // There is room, but not in one piece.
            let victim = self.order.victim(block, from.len, &self.slots, &self.ranges);
            if victim.and_then(|victim| self.evict(victim)).is_none() {
                return false;
            }
        }
    }

    /// Gives back the RAM of what is free beyond the limit.
    fn give_back(&mut self) {
        for hole in self.ranges.free_beyond_limit() {
            if let Err(error) = self.mapping.give_back(hole)
                && !std::mem::replace(&mut self.resize.complained, true)
            {
                tracing::warn!(%error, "memory of slots could not be returned to the system");
            }
        }
        if self.resize.beyond.is_empty() {
            self.ranges.forget_behind_limit();
        }
    }

    /// Tells others how much the slots hold in RAM: one store to memory, which a miss, with its read, does not notice.
    pub(super) fn tell_held(&self) {
        self.resize.shared.hold(self.ranges.high());
    }
}
