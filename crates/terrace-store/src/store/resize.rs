//! Changing the budget while the store is in use.
//!
//! The arena keeps its addresses. A smaller budget is a limit within it, after which nothing is
//! placed any more. Blocks are evicted in their order until the others fit. Of the remaining
//! blocks, those after the limit are copied into holes before it, and the memory after the limit is
//! then returned to the system as one piece. So no hole keeps RAM, and huge pages stay whole:
//! returning the slots of evicted blocks, wherever they are, would split most huge pages, and the
//! next blocks would be read into other holes.
//!
//! Blocks that are leased or being read stay where they are, and are moved when that is possible.

use super::Store;
use crate::block::BlockId;
use crate::budget::{BudgetHandle, Shared};
use crate::ranges::{GRANULE, Place};
use std::sync::Arc;
use terrace_model::ByteSize;

/// Bytes of a huge page. Limits of large arenas are multiples of it, so that none is split.
const HUGE: u64 = 2 << 20;
/// With limits of at least this size, rounding down to huge pages costs at most 3 %.
const LARGE: u64 = 32 * HUGE;

/// The state of changing the budget.
#[derive(Debug)]
pub(super) struct Resize {
    shared: Arc<Shared>,
    /// The budget that was applied last.
    heeded: u64,
    /// Blocks after the limit, and possibly some that were there before.
    beyond: Vec<BlockId>,
    /// The limit when the graph began, if it was higher.
    overdraft: Option<u64>,
    /// True if a failure to return memory was logged, which happens once.
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
    /// Makes a handle for changing the budget from outside. `least` is the smallest budget that the
    /// consumer can work with; the handle allows no less than the largest block.
    /// `least` then applies to earlier handles too, because replaced blocks may need more.
    pub fn budget_handle(&self, least: ByteSize) -> BudgetHandle {
        let least = least.max(self.min_budget()).bytes();
        // A page more, because limits are rounded down to whole pages.
        let page = if least >= LARGE { HUGE } else { GRANULE };
        BudgetHandle::new(&self.resize.shared, least.saturating_add(page))
    }

    /// Returns the largest budget of the slots: what the store was opened with, less what is lent.
    pub fn most_capacity(&self) -> ByteSize {
        ByteSize(self.resize.shared.most_unlent())
    }

    /// Applies the current budget. Costs one atomic load if nothing has changed.
    pub(super) fn heed_budget(&mut self) {
        let wanted = self.resize.shared.wanted();
        if wanted != self.resize.heeded {
            self.resize.heeded = wanted;
            self.resize(wanted);
        } else if !self.resize.beyond.is_empty() {
            self.settle(false);
        }
    }

    /// Notes that the leases of the last graph have ended, so that the limit applies without
    /// exception.
    pub(super) fn end_overdraft(&mut self) {
        self.resize.overdraft = None;
    }

    /// Places blocks within the budget at the start of the graph, if leases that were taken with
    /// that larger budget leave no room now: the consumer relies on it.
    pub(super) fn overdraw(&mut self, place: impl FnOnce(&mut Self) -> usize) -> usize {
        let Some(before) = self.resize.overdraft else { return 0 };
        let limit = self.ranges.limit();
        self.ranges.set_limit(limit.max(before));
        let placed = place(self);
        self.ranges.set_limit(limit);
        self.note_behind();
        // What was evicted for it may lie after the limit, and is no longer known as such.
        if self.ranges.high() > limit {
            self.give_back();
            self.tell_held();
        }
        placed
    }

    /// Frees staging memory.
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

    /// Returns the largest limit within the budget that splits no page.
    fn limit_for(&self, wanted: u64) -> u64 {
        let page = if wanted >= LARGE { HUGE } else { GRANULE };
        if wanted >= self.ranges.len() {
            return self.ranges.len();
        }
        // Pages begin at addresses that are multiples of their size.
        wanted - (self.mapping.address(wanted) as u64) % page
    }

    fn note_behind(&mut self) {
        self.resize.beyond.clear();
        self.resize.beyond.extend(self.slots.beyond(self.ranges.limit()));
    }

    /// Enforces the limit, as far as leases and reads allow.
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

    /// Moves the block before the limit, or evicts it if it is next in the order. Returns false if
    /// it must stay for now.
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
            // There is enough room, but not in one piece.
            let victim = self.order.victim(block, from.len, &self.slots, &self.ranges);
            if victim.and_then(|victim| self.evict(victim)).is_none() {
                return false;
            }
        }
    }

    /// Returns the RAM of free ranges after the limit to the system.
    fn give_back(&mut self) {
        for hole in self.ranges.free_beyond_limit() {
            if let Err(error) = self.mapping.give_back(hole)
                && !std::mem::replace(&mut self.resize.complained, true)
            {
                tracing::warn!(%error, "memory of slots could not be returned to the system");
            }
        }
        self.touched = self.touched.min(self.ranges.limit());
        if self.resize.beyond.is_empty() {
            self.ranges.forget_behind_limit();
        }
    }

    /// Publishes how much RAM the slots hold. This is one write to memory, which is negligible in a
    /// miss.
    pub(super) fn tell_held(&self) {
        self.resize.shared.hold(self.ranges.high());
    }
}
