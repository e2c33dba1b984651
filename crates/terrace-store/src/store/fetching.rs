//! Blocks for a consumer: leasing what is there, placing what is not, handing out what arrives.

use super::Store;
use crate::block::BlockId;
use crate::error::StoreError;
use crate::fetch::{Entry, Fetch, Ready};
use crate::purpose::Use;
use crate::slots::{Sight, SlotState};
use std::sync::Arc;
use terrace_model::ByteSize;

/// What became of a block in `start`.
enum Accepted {
    Hit(u32),
    Waiting(u32),
    NoRoom,
}

impl Store {
    /// [`Store::start_as`] for [`Use::Decode`].
    ///
    /// # Errors
    /// As there.
    pub fn start(&mut self, fetch: &mut Fetch, blocks: &[BlockId]) -> Result<usize, StoreError> {
        self.start_as(fetch, blocks, Use::Decode)
    }

    /// Accepts blocks from the front of `blocks`: leases those that are resident, and places and starts to read the
    /// others, evicting what is not leased. Returns how many were accepted; when fewer than all, no more can be placed
    /// until leases are released, and the caller works in waves. None is returned only where waiting for reads that nothing has
    /// leased would not help either. A block may be listed more than once, and one that is
    /// already being read is joined. `how` they are used decides how long they stay.
    ///
    /// # Errors
    /// [`StoreError::BudgetTooSmall`] if not even the first block can be placed though nothing is leased;
    /// [`StoreError::Engine`] if the engine broke down; [`StoreError::Misuse`] for ids that the store does not have.
    pub fn start_as(&mut self, fetch: &mut Fetch, blocks: &[BlockId], how: Use) -> Result<usize, StoreError> {
        self.adopt(fetch)?;
        self.check_ids(blocks)?;
        self.heed_budget();
        loop {
            let events = self.slots.events;
            let accepted = self.accept(fetch, blocks, how);
            self.drive(false)?;
            if accepted > 0 || blocks.is_empty() || !fetch.is_empty() {
                return Ok(accepted);
            }
            if self.slots.events != events {
                // Loads that nothing waits for ended just now: what they held can be evicted.
                continue;
            }
            if self.slots.any_abandoned() {
                // Such loads hold the room; once there, they can go.
                self.drive(true)?;
            } else if self.slots.leases.any_leased() {
                let accepted = self.overdraw(|store| store.accept(fetch, blocks, how));
                self.drive(false)?;
                return Ok(accepted);
            } else {
                return Err(self.too_small(blocks[0]));
            }
        }
    }

    /// The next accepted block whose bytes are there: those that were resident first, then in the order of arrival.
    /// Waits for I/O if need be. `None` when all were returned.
    ///
    /// # Errors
    /// [`StoreError::Read`] or [`StoreError::UnexpectedEof`] for a block whose load failed. It counts as returned, and
    /// is not resident; the fetch's other blocks are not affected. [`StoreError::Engine`] if the engine broke down.
    pub fn next(&mut self, fetch: &mut Fetch) -> Result<Option<Ready>, StoreError> {
        if !fetch.is_empty() {
            self.adopt(fetch)?;
        }
        if self.is_busy() {
            // The consumer may have computed for long: keep the disk busy.
            self.drive(false)?;
        }
        loop {
            self.sort_in_arrivals(fetch);
            if let Some(entry) = fetch.ready.pop_front() {
                return self.hand_out(entry).map(Some);
            }
            if fetch.waiting.is_empty() {
                return Ok(None);
            }
            if self.flights.in_flight() == 0 && self.backlog.is_empty() {
                return Err(StoreError::Misuse("a fetch waits for a block that is not being loaded".into()));
            }
            let asked = self.clock.now();
            let driven = self.drive(true);
            self.waited(Some(fetch.waiting[0].block), asked);
            driven?;
        }
    }

    /// Like [`Store::next`], but `None` also when the next block has yet to arrive
    /// ([`Fetch::is_exhausted`] tells the two apart).
    ///
    /// # Errors
    /// As [`Store::next`].
    pub fn try_next(&mut self, fetch: &mut Fetch) -> Result<Option<Ready>, StoreError> {
        if !fetch.is_empty() {
            self.adopt(fetch)?;
        }
        if self.is_busy() {
            self.drive(false)?;
        }
        self.sort_in_arrivals(fetch);
        fetch.ready.pop_front().map(|entry| self.hand_out(entry)).transpose()
    }

    /// Ends the fetch: gives all of its leases back. What it had started to load is loaded to the end.
    pub fn release(&mut self, fetch: &mut Fetch) {
        fetch.let_go();
    }

    /// Takes notice of what the disk has done, without waiting. [`Store::start`] and [`Store::next`] do so too; a consumer
    /// that computes for long in between keeps the queue full with this.
    ///
    /// # Errors
    /// [`StoreError::Engine`] if the engine broke down.
    pub fn poll(&mut self) -> Result<(), StoreError> {
        self.heed_budget();
        self.drive(false)
    }

    /// Whether there is anything to move along.
    fn is_busy(&self) -> bool {
        self.flights.in_flight() > 0 || self.any_in_background()
    }

    /// Refuses ids that the store does not have.
    pub(super) fn check_ids(&self, blocks: &[BlockId]) -> Result<(), StoreError> {
        match blocks.iter().find(|block| block.index() >= self.blocks.len()) {
            Some(block) => Err(StoreError::Misuse(format!("there is no block {} among {}", block.0, self.blocks.len()))),
            None => Ok(()),
        }
    }

    /// Makes an empty fetch ours, and refuses another store's.
    fn adopt(&mut self, fetch: &mut Fetch) -> Result<(), StoreError> {
        let ours = fetch.leases.as_ref().is_some_and(|leases| Arc::ptr_eq(leases, &self.slots.leases));
        if !ours {
            if !fetch.is_empty() {
                return Err(StoreError::Misuse("the fetch holds blocks of another store".into()));
            }
            fetch.leases = Some(Arc::clone(&self.slots.leases));
            fetch.seen = 0;
        }
        Ok(())
    }

    /// `start` without the engine's part.
    fn accept(&mut self, fetch: &mut Fetch, blocks: &[BlockId], how: Use) -> usize {
        // What is resident must not go to make room for what stands before it in the list: leased ahead.
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.clear();
        ahead.extend(blocks.iter().map(|&block| {
            matches!(self.slots.state(block), SlotState::Resident { .. })
                .then(|| self.slots.leases.lease(block))
        }));
        // From here on in the list, leases ahead were given up again.
        let mut back = blocks.len();
        let mut accepted = 0;
        for (index, &block) in blocks.iter().enumerate() {
            let took = match ahead[index].take() {
                Some(generation) => Accepted::Hit(generation),
                None => loop {
                    match self.lease_or_load(block, how) {
                        Accepted::NoRoom if back > index + 1 => {
                            back -= 1;
                            if let Some(generation) = ahead[back].take() {
                                self.slots.leases.release(blocks[back], generation);
                            }
                        }
                        took => break took,
                    }
                },
            };
            match took {
                Accepted::Hit(generation) => {
                    let entry = Entry { index, block, generation };
                    self.counters.hit(block);
                    self.touch(block, how);
                    fetch.held.push(entry);
                    fetch.ready.push_back(entry);
                }
                Accepted::Waiting(generation) => {
                    let entry = Entry { index, block, generation };
                    fetch.held.push(entry);
                    fetch.waiting.push(entry);
                }
                Accepted::NoRoom => break,
            }
            accepted += 1;
        }
        for (block, lease) in blocks.iter().zip(&mut ahead) {
            if let Some(generation) = lease.take() {
                self.slots.leases.release(*block, generation);
            }
        }
        self.ahead = ahead;
        accepted
    }

    fn lease_or_load(&mut self, block: BlockId, how: Use) -> Accepted {
        match self.slots.state(block) {
            SlotState::Resident { .. } => Accepted::Hit(self.slots.leases.lease(block)),
            // A read of ours that has failed, with requests still in the engine: what joins it gets the same failure.
            SlotState::Loading { failure: Some(_), .. } if !self.order.purpose(block).is_background() => {
                Accepted::Waiting(self.slots.leases.lease(block))
            }
            SlotState::Loading { .. } => {
                self.counters.joined(block);
                self.touch(block, how);
                self.promote(block);
                Accepted::Waiting(self.slots.leases.lease(block))
            }
            SlotState::Empty => {
                let Some(place) = self.make_room(block, self.slot_size(block).0) else {
                    return Accepted::NoRoom;
                };
                self.forget_guess(block);
                self.counters.miss(block);
                self.slots.begin(block, place);
                self.order.begin(block, how.into());
                self.backlog.push_back(block);
                Accepted::Waiting(self.slots.leases.lease(block))
            }
        }
    }

    /// The block, which has a slot, is used.
    fn touch(&mut self, block: BlockId, how: Use) {
        if self.order.touch(block, how) {
            self.counters.guess_used(block);
        }
    }

    /// Moves what is there by now from the fetch's waiting blocks to the ready ones.
    fn sort_in_arrivals(&mut self, fetch: &mut Fetch) {
        if fetch.waiting.is_empty() || fetch.seen == self.slots.events {
            return;
        }
        fetch.seen = self.slots.events;
        let (slots, arrived) = (&self.slots, &mut fetch.arrived);
        fetch.waiting.retain(|entry| match slots.look(entry.block, entry.generation) {
            Sight::Waiting => true,
            Sight::Here { arrival, .. } => {
                arrived.push((arrival, *entry));
                false
            }
            Sight::Failed(_) | Sight::Stale => {
                arrived.push((u64::MAX, *entry));
                false
            }
        });
        arrived.sort_unstable_by_key(|(arrival, entry)| (*arrival, entry.index));
        fetch.ready.extend(arrived.drain(..).map(|(_, entry)| entry));
    }

    fn hand_out(&mut self, entry: Entry) -> Result<Ready, StoreError> {
        let Entry { index, block, generation } = entry;
        self.order.handed_out(block);
        let spec = &self.blocks[block.index()];
        match self.slots.look(block, generation) {
            Sight::Here { place, .. } => {
                let data = self.mapping.address(place.offset + self.hull(block).skip);
                let len = usize::try_from(spec.extent.len).expect("a block in RAM fits the address space");
                Ok(Ready { index, block, data, len })
            }
            Sight::Failed(failure) => Err(self.read_error(spec.to_string(), spec.extent, failure)),
            Sight::Waiting | Sight::Stale => Err(StoreError::Misuse(format!(
                "the lease on {spec} has generation {generation}, which has ended"
            ))),
        }
    }

    fn too_small(&self, block: BlockId) -> StoreError {
        let spec = &self.blocks[block.index()];
        StoreError::BudgetTooSmall {
            tensor: spec.to_string(),
            needed: self.slot_size(block),
            budget: ByteSize(self.ranges.limit().min(self.budget.0)),
        }
    }
}
