//! The state of every block's slot, changed in one place.

use crate::block::BlockId;
use crate::lease::LeaseTable;
use crate::ranges::Place;
use std::collections::HashMap;
use std::sync::Arc;

/// Where a block's bytes are in their life. Leases are counted beside it, in the [`LeaseTable`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum SlotState {
    /// Nowhere in RAM.
    Empty,
    /// On the way.
    Loading {
        place: Place,
        /// Bytes of the hull that the engine was given.
        pushed: u64,
        /// Requests that the engine has.
        requests: u32,
        /// Why it will not arrive.
        failure: Option<Failure>,
    },
    /// There.
    Resident {
        place: Place,
        /// Its number in the order of arrival.
        arrival: u64,
    },
}

impl SlotState {
    /// The slot.
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::Empty => None,
            Self::Loading { place, .. } | Self::Resident { place, .. } => Some(*place),
        }
    }
}

/// Why bytes did not arrive. Small and copied: several may wait for the same block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The system's error number.
    Os(i32),
    /// The file has no byte at this offset any more.
    Eof { end: u64 },
}

/// What a fetch learns about a block that it leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Not there yet.
    Waiting,
    /// There, as the `arrival`-th.
    Here { arrival: u64, place: Place },
    /// The load failed.
    Failed(Failure),
    /// The lease is of bytes that are gone: leases were mixed up.
    Stale,
}

/// What came of a loading block when one of its requests was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartOver {
    /// Others are not.
    Pending,
    /// It is resident.
    Arrived,
    /// It has failed, and gives this place back.
    Failed(Place),
    /// It has failed, and is to be read from the start, to the same place.
    Again,
}

/// All slots.
#[derive(Debug)]
pub(crate) struct Slots {
    states: Vec<SlotState>,
    pub leases: Arc<LeaseTable>,
    /// Arrivals and failures so far.
    pub events: u64,
    /// The last failure of each block that ever failed, with the generation that it ended.
    failures: HashMap<BlockId, (u32, Failure)>,
    pub resident: u64,
    loading: u64,
}

impl Slots {
    pub fn new(blocks: usize) -> Self {
        Self {
            states: vec![SlotState::Empty; blocks],
            leases: Arc::new(LeaseTable::new(blocks)),
            events: 0,
            failures: HashMap::new(),
            resident: 0,
            loading: 0,
        }
    }

    pub fn state(&self, block: BlockId) -> SlotState {
        self.states[block.index()]
    }

    /// Whether any block is on its way without a lease. Looks at all of them if any is on its way.
    pub fn any_abandoned(&self) -> bool {
        let loading = (0..).zip(&self.states).filter(|(_, state)| matches!(state, SlotState::Loading { .. }));
        self.loading > 0 && loading.into_iter().any(|(block, _)| !self.leases.is_leased(BlockId(block)))
    }

    /// The slot's place, if the block may be evicted.
    pub fn evictable(&self, block: BlockId) -> Option<Place> {
        match self.state(block) {
            SlotState::Resident { place, .. } if !self.leases.is_leased(block) => Some(place),
            _ => None,
        }
    }

    /// Empty to loading, with a generation of its own.
    pub fn begin(&mut self, block: BlockId, place: Place) {
        debug_assert!(matches!(self.state(block), SlotState::Empty), "{block:?}: {:?}", self.state(block));
        self.leases.renew(block);
        self.loading += 1;
        self.states[block.index()] = SlotState::Loading { place, pushed: 0, requests: 0, failure: None };
    }

    /// A loading block's next `bytes` went to the engine.
    pub fn chunk_pushed(&mut self, block: BlockId, bytes: u64) {
        if let SlotState::Loading { pushed, requests, .. } = &mut self.states[block.index()] {
            *pushed += bytes;
            *requests += 1;
        }
    }

    /// One of a loading block's requests is over. `total` is the hull's length. With `again`, a failed block that is leased
    /// is not given up: its leases stay good, and its bytes are to be asked for once more.
    pub fn chunk_over(
        &mut self,
        block: BlockId,
        failed: Option<Failure>,
        total: u64,
        again: bool,
    ) -> PartOver {
        let SlotState::Loading { place, pushed, requests, failure } = &mut self.states[block.index()] else {
            debug_assert!(false, "a request of {block:?}, which is {:?}", self.state(block));
            return PartOver::Pending;
        };
        *requests -= 1;
        *failure = failure.or(failed);
        if *requests > 0 || (failure.is_none() && *pushed < total) {
            return PartOver::Pending;
        }
        if again && failure.is_some() && self.leases.is_leased(block) {
            (*pushed, *failure) = (0, None);
            return PartOver::Again;
        }
        let (place, failure) = (*place, *failure);
        self.events += 1;
        self.loading -= 1;
        if let Some(failure) = failure {
            self.failures.insert(block, (self.leases.generation(block), failure));
            self.leases.renew(block);
            self.states[block.index()] = SlotState::Empty;
            return PartOver::Failed(place);
        }
        self.resident += 1;
        self.states[block.index()] = SlotState::Resident { place, arrival: self.events };
        PartOver::Arrived
    }

    /// Resident to empty; the place is free again. The block must be evictable.
    pub fn evict(&mut self, block: BlockId) -> Option<Place> {
        let place = self.evictable(block)?;
        self.leases.renew(block);
        self.resident -= 1;
        self.states[block.index()] = SlotState::Empty;
        Some(place)
    }

    /// A resident block without a lease is somewhere else now; its bytes are the same.
    pub fn moved(&mut self, block: BlockId, to: Place) {
        debug_assert!(self.evictable(block).is_some(), "{block:?}: {:?}", self.state(block));
        if let SlotState::Resident { place, .. } = &mut self.states[block.index()] {
            *place = to;
        }
    }

    /// The blocks with slots that end beyond `limit`.
    pub fn beyond(&self, limit: u64) -> impl Iterator<Item = BlockId> {
        let states = (0..).map(BlockId).zip(&self.states);
        states
            .filter(move |(_, state)| state.place().is_some_and(|place| place.end() > limit))
            .map(|(b, _)| b)
    }

    /// How a leased block is doing.
    pub fn look(&self, block: BlockId, lease: u32) -> Sight {
        if self.leases.generation(block) != lease {
            return match self.failures.get(&block) {
                Some((generation, failure)) if *generation == lease => Sight::Failed(*failure),
                _ => Sight::Stale,
            };
        }
        match self.state(block) {
            SlotState::Resident { place, arrival } => Sight::Here { arrival, place },
            SlotState::Loading { .. } => Sight::Waiting,
            SlotState::Empty => Sight::Stale,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { offset: 0, len: 8192 };
    const BLOCK: BlockId = BlockId(0);

    #[test]
    fn a_life() {
        let mut slots = Slots::new(1);
        slots.begin(BLOCK, PLACE);
        let lease = slots.leases.lease(BLOCK);
        slots.chunk_pushed(BLOCK, 4096);
        assert_eq!(
            slots.chunk_over(BLOCK, None, 8192, false),
            PartOver::Pending,
            "half of it is not pushed yet"
        );
        slots.chunk_pushed(BLOCK, 4096);
        assert_eq!(slots.look(BLOCK, lease), Sight::Waiting);
        assert_eq!(slots.chunk_over(BLOCK, None, 8192, false), PartOver::Arrived);
        assert_eq!(slots.look(BLOCK, lease), Sight::Here { arrival: 1, place: PLACE });
        assert_eq!(slots.evict(BLOCK), None, "leased");
        slots.leases.release(BLOCK, lease);
        assert_eq!(slots.evict(BLOCK), Some(PLACE));
        assert_eq!(slots.look(BLOCK, lease), Sight::Stale);
    }

    #[test]
    fn a_failure_ends_with_the_last_request_and_is_told_to_its_generation() {
        let mut slots = Slots::new(1);
        slots.begin(BLOCK, PLACE);
        let lease = slots.leases.lease(BLOCK);
        slots.chunk_pushed(BLOCK, 4096);
        slots.chunk_pushed(BLOCK, 4096);
        let first = slots.chunk_over(BLOCK, Some(Failure::Os(5)), 8192, false);
        assert_eq!(first, PartOver::Pending, "one request still writes");
        assert_eq!(slots.chunk_over(BLOCK, None, 8192, false), PartOver::Failed(PLACE));
        slots.begin(BLOCK, PLACE);
        assert_eq!(slots.look(BLOCK, lease), Sight::Failed(Failure::Os(5)));
        assert!(!slots.leases.is_leased(BLOCK), "the failure voided the lease");
    }

    #[test]
    fn a_failed_block_may_begin_again_for_who_has_leased_it() {
        let mut slots = Slots::new(1);
        slots.begin(BLOCK, PLACE);
        slots.chunk_pushed(BLOCK, 4096);
        let lease = slots.leases.lease(BLOCK);
        assert_eq!(slots.chunk_over(BLOCK, Some(Failure::Os(5)), 8192, true), PartOver::Again);
        assert_eq!(slots.look(BLOCK, lease), Sight::Waiting);
        slots.leases.release(BLOCK, lease);
        slots.chunk_pushed(BLOCK, 8192);
        assert_eq!(slots.chunk_over(BLOCK, Some(Failure::Os(5)), 8192, true), PartOver::Failed(PLACE));
    }
}
