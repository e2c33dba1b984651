//! Making room in the arena for a block that will be read.

use super::Store;
use crate::block::BlockId;
use crate::ranges::Place;

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
