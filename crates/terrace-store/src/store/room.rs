//! Making room in the arena for a block that will be read.

use super::Store;
use crate::block::BlockId;
use crate::ranges::{GRANULE, Place};

impl Store {
    /// Finds a place of `needed` bytes for `incoming`, which was requested, and evicts blocks if
    /// necessary.
    pub(super) fn make_room(&mut self, incoming: BlockId, needed: u64) -> Option<Place> {
        if needed > self.ranges.limit() {
            return None;
        }
        loop {
            if let Some(place) = self.alloc(needed) {
                return Some(place);
            }
            let victim = self.order.victim(incoming, needed, &self.slots, &self.ranges)?;
            self.evict(victim)?;
        }
    }

    /// Finds a place for a guess, and evicts disposable and cold blocks only.
    pub(super) fn make_room_for_guess(&mut self, incoming: BlockId, needed: u64) -> Option<Place> {
        if needed > self.ranges.limit() {
            return None;
        }
        loop {
            if let Some(place) = self.alloc(needed) {
                return Some(place);
            }
            let victim = self.order.cold_victim(incoming, needed, &self.slots, &self.ranges)?;
            self.evict(victim)?;
        }
    }

    /// Returns whether all of `needed` would fit at once if only the blocks `beside` had slots.
    /// Sizes count with one page more, because slots of equally long blocks may differ by a page.
    pub fn fits_beside(
        &self,
        beside: impl Iterator<Item = BlockId>,
        needed: impl Iterator<Item = BlockId>,
    ) -> bool {
        let mut taken: Vec<Place> = beside.filter_map(|block| self.slots.state(block).place()).collect();
        taken.sort_unstable_by_key(|place| place.offset);
        let limit = self.ranges.limit();
        let mut holes = Vec::with_capacity(taken.len() + 1);
        let mut from = 0;
        for place in taken {
            holes.push(place.offset.min(limit).saturating_sub(from));
            from = from.max(place.end());
        }
        holes.push(limit.saturating_sub(from));
        let spare = if self.files.direct { GRANULE } else { 0 };
        for block in needed {
            let size = self.slot_size(block).0 + spare;
            let Some(hole) = holes.iter_mut().filter(|hole| **hole >= size).min() else { return false };
            *hole -= size;
        }
        true
    }

    /// Allocates a free place.
    pub(super) fn alloc(&mut self, len: u64) -> Option<Place> {
        let place = self.ranges.alloc(len);
        self.tell_held();
        place
    }

    pub(super) fn evict(&mut self, victim: BlockId) -> Option<()> {
        let freed = self.slots.evict(victim)?;
        if self.order.gone(victim) {
            self.counters.guess_wasted(victim);
        }
        self.ranges.free(freed);
        self.counters.total.evictions += 1;
        Some(())
    }
}
