//! The states of all slots, and all transitions between them.

use crate::block::BlockId;
use crate::lease::LeaseTable;
use crate::ranges::Place;
use std::collections::HashMap;
use std::sync::Arc;

/// The state of a block's bytes. Leases are counted separately, in the [`LeaseTable`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum SlotState {
    /// The block is not in RAM.
    Empty,
    /// The block is being read.
    Loading {
        place: Place,
        /// Bytes of the hull that were passed to the engine.
        pushed: u64,
        /// Number of requests that the engine has.
        requests: u32,
        /// Why the block will not arrive.
        failure: Option<Failure>,
    },
    /// The block is in its slot.
    Resident {
        place: Place,
        /// Its number in the order of arrival.
        arrival: u64,
    },
}

impl SlotState {
    /// Returns the slot.
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::Empty => None,
            Self::Loading { place, .. } | Self::Resident { place, .. } => Some(*place),
        }
    }
}

/// Why bytes did not arrive. Small and copied, because several fetches may wait for the same block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The system's error number.
    Os(i32),
    /// The file ends at this offset.
    Eof { end: u64 },
    /// The bytes have another checksum than they should have.
    Checksum { expected: u32, found: u32 },
}

/// State of a block that a fetch leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// It has not arrived.
    Waiting,
    /// It has arrived, as the `arrival`-th.
    Here { arrival: u64, place: Place },
    /// The read failed.
    Failed(Failure),
    /// The leased bytes are gone: leases were mixed up.
    Stale,
}

/// The state of a loading block after one of its requests has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartOver {
    /// Other requests have not ended.
    Pending,
    /// The block is resident.
    Arrived,
    /// The block has failed, and this place is free.
    Failed(Place),
    /// The block has failed, and must be read again from the start into the same place.
    Again,
}

#[derive(Debug)]
pub(crate) struct Slots {
    states: Vec<SlotState>,
    pub leases: Arc<LeaseTable>,
    /// Number of arrivals and failures so far.
    pub events: u64,
    /// The last failure of each block that has failed, with the generation that it ended.
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

    /// Returns whether any block is being read without a lease. Checks all blocks if any is being
    /// read.
    pub fn any_abandoned(&self) -> bool {
        let loading = (0..).zip(&self.states).filter(|(_, state)| matches!(state, SlotState::Loading { .. }));
        self.loading > 0 && loading.into_iter().any(|(block, _)| !self.leases.is_leased(BlockId(block)))
    }

    /// Returns the block's place if it may be evicted.
    pub fn evictable(&self, block: BlockId) -> Option<Place> {
        match self.state(block) {
            SlotState::Resident { place, .. } if !self.leases.is_leased(block) => Some(place),
            _ => None,
        }
    }

    /// Changes a block from empty to loading, with a new generation.
    pub fn begin(&mut self, block: BlockId, place: Place) {
        debug_assert!(matches!(self.state(block), SlotState::Empty), "{block:?}: {:?}", self.state(block));
        self.leases.renew(block);
        self.loading += 1;
        self.states[block.index()] = SlotState::Loading { place, pushed: 0, requests: 0, failure: None };
    }

    /// Notes that the next `bytes` of a loading block were passed to the engine.
    pub fn chunk_pushed(&mut self, block: BlockId, bytes: u64) {
        if let SlotState::Loading { pushed, requests, .. } = &mut self.states[block.index()] {
            *pushed += bytes;
            *requests += 1;
        }
    }

    /// Notes that one of a loading block's requests has ended. `total` is the length of the hull.
    /// With `again`, a failed block that is leased keeps its leases, and must be read once more.
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

    /// Changes a block from resident to empty, and returns its place; `None` if it may not be
    /// evicted.
    pub fn evict(&mut self, block: BlockId) -> Option<Place> {
        let place = self.evictable(block)?;
        self.leases.renew(block);
        self.resident -= 1;
        self.states[block.index()] = SlotState::Empty;
        Some(place)
    }

    /// Notes that a resident block without a lease was moved; its bytes are the same.
    pub fn moved(&mut self, block: BlockId, to: Place) {
        debug_assert!(self.evictable(block).is_some(), "{block:?}: {:?}", self.state(block));
        if let SlotState::Resident { place, .. } = &mut self.states[block.index()] {
            *place = to;
        }
    }

    /// Returns the blocks whose slots end after `limit`.
    pub fn beyond(&self, limit: u64) -> impl Iterator<Item = BlockId> {
        let states = (0..).map(BlockId).zip(&self.states);
        states
            .filter(move |(_, state)| state.place().is_some_and(|place| place.end() > limit))
            .map(|(b, _)| b)
    }

    /// Returns the state of a leased block.
    pub fn look(&self, block: BlockId, lease: u32) -> Sight {
        if self.leases.generation(block) != lease {
            // Only a failed read ends a generation that is leased. The block may have failed again
            // since, for another fetch.
            let since = |generation: u32| generation.wrapping_sub(lease) <= u32::MAX / 2;
            return match self.failures.get(&block) {
                Some((generation, failure)) if since(*generation) => Sight::Failed(*failure),
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
    fn a_failure_is_told_though_the_block_has_failed_again() {
        let mut slots = Slots::new(1);
        let leases = [5, 6].map(|errno| {
            slots.begin(BLOCK, PLACE);
            let lease = slots.leases.lease(BLOCK);
            slots.chunk_pushed(BLOCK, 8192);
            slots.chunk_over(BLOCK, Some(Failure::Os(errno)), 8192, false);
            lease
        });
        for lease in leases {
            assert_eq!(slots.look(BLOCK, lease), Sight::Failed(Failure::Os(6)));
        }
        slots.begin(BLOCK, PLACE);
        let later = slots.leases.lease(BLOCK);
        slots.leases.renew(BLOCK);
        assert_eq!(slots.look(BLOCK, later), Sight::Stale, "that failure came before the lease");
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
