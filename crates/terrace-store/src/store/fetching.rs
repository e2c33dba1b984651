//! Blocks for a consumer: leasing those that are resident, reading the others, and returning what
//! arrives.

use super::Store;
use crate::block::BlockId;
use crate::error::StoreError;
use crate::fetch::{Entry, Fetch, Ready};
use crate::purpose::Use;
use crate::slots::{Sight, SlotState};
use std::sync::Arc;
use terrace_model::ByteSize;

/// The result of `start` for a block.
enum Accepted {
    Hit(u32),
    Waiting(u32),
    NoRoom,
}

impl Store {
    /// Calls [`Store::start_as`] with [`Use::Decode`].
    ///
    /// # Errors
    /// The same as [`Store::start_as`].
    pub fn start(&mut self, fetch: &mut Fetch, blocks: &[BlockId]) -> Result<usize, StoreError> {
        self.start_as(fetch, blocks, Use::Decode)
    }

    /// Accepts blocks from the front of `blocks`: leases those that are resident, and starts to
    /// read the others into slots, evicting what is not leased. Returns the number of accepted
    /// blocks. If that is not all, no more fit until leases are released, and the caller must work
    /// in waves. It is 0 only if waiting for reads without leases would not help either. A block
    /// may be listed more than once, and one that is already being read is joined. `how` the blocks
    /// are used determines how long they stay.
    ///
    /// # Errors
    /// [`StoreError::BudgetTooSmall`] if not even the first block fits although nothing is leased;
    /// [`StoreError::Engine`] if the engine stopped working; [`StoreError::Misuse`] for ids that
    /// the store does not have.
    pub fn start_as(&mut self, fetch: &mut Fetch, blocks: &[BlockId], how: Use) -> Result<usize, StoreError> {
        self.start_at_least(fetch, blocks, how, 1)
    }

    /// Does the same as [`Store::start_as`] for a consumer that cannot compute anything with fewer
    /// than `least` blocks. If `fetch` holds no blocks, it accepts fewer only if `least` blocks do
    /// not fit beside what is leased: it waits for guesses and abandoned reads, and evicts whatever
    /// is not leased and in the way.
    ///
    /// # Errors
    /// The same as [`Store::start_as`].
    pub fn start_at_least(
        &mut self,
        fetch: &mut Fetch,
        blocks: &[BlockId],
        how: Use,
        least: usize,
    ) -> Result<usize, StoreError> {
        self.adopt(fetch)?;
        self.check_ids(blocks)?;
        self.heed_budget();
        let least = least.min(blocks.len());
        let adds = !fetch.is_empty();
        let mut accepted = 0;
        let mut cleared = false;
        loop {
            let events = self.slots.events;
            accepted += self.accept(fetch, blocks, accepted, how);
            self.drive(false)?;
            if accepted >= least || adds {
                return Ok(accepted);
            }
            if self.slots.events != events {
                // Reads that nothing waits for have just ended: their blocks can be evicted.
                continue;
            }
            if self.slots.any_abandoned() {
                // Such reads hold the room; when they have ended, their blocks can be evicted.
                self.drive(true)?;
                continue;
            }
            if accepted == 0 && !self.slots.leases.any_leased() {
                // The last lease may have ended on another thread since `accept` found no room.
                accepted = self.accept(fetch, blocks, 0, how);
                if accepted == 0 {
                    return Err(self.too_small(blocks[0]));
                }
                continue;
            }
            accepted += self.overdraw(|store| store.accept(fetch, blocks, accepted, how));
            if accepted == 0 || accepted >= least || cleared {
                self.drive(false)?;
                return Ok(accepted);
            }
            // Some blocks have slots, but where these are, the others may not fit beside them.
            cleared = true;
            fetch.let_go();
            accepted = 0;
            while self.slots.any_abandoned() {
                self.drive(true)?;
            }
            while let Some(block) = self.order.first_out(&self.slots, &self.ranges) {
                if self.evict(block).is_none() {
                    break;
                }
            }
        }
    }

    /// Returns the next accepted block that has arrived: first those that were resident, then the
    /// others in the order of arrival. Waits for I/O if necessary. `None` means that all have been
    /// returned.
    ///
    /// # Errors
    /// [`StoreError::Read`] or [`StoreError::UnexpectedEof`] for a block whose read failed. It
    /// counts as returned, and is not resident; the fetch's other blocks are not affected.
    /// [`StoreError::Engine`] if the engine stopped working.
    pub fn next(&mut self, fetch: &mut Fetch) -> Result<Option<Ready>, StoreError> {
        if !fetch.is_empty() {
            self.adopt(fetch)?;
        }
        if self.is_busy() {
            // The consumer may have computed for a long time: keep the disk busy.
            self.drive(false)?;
        }
        loop {
            self.sort_in_arrivals(fetch);
            if let Some(ready) = self.hand_out_next(fetch)? {
                return Ok(Some(ready));
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

    /// Like [`Store::next`], but also returns `None` if no further block has arrived yet
    /// ([`Fetch::is_exhausted`] distinguishes the two).
    ///
    /// # Errors
    /// The same as [`Store::next`].
    pub fn try_next(&mut self, fetch: &mut Fetch) -> Result<Option<Ready>, StoreError> {
        if !fetch.is_empty() {
            self.adopt(fetch)?;
        }
        if self.is_busy() {
            self.drive_and_leave()?;
        }
        self.sort_in_arrivals(fetch);
        self.hand_out_next(fetch)
    }

    /// Ends the fetch by releasing all of its leases. Reads that it has started are completed.
    pub fn release(&mut self, fetch: &mut Fetch) {
        fetch.let_go();
    }

    /// Processes completions without waiting. [`Store::start`] and [`Store::next`] do so, too; a
    /// consumer that computes for a long time in between can call this to keep the queue full.
    ///
    /// # Errors
    /// [`StoreError::Engine`] if the engine stopped working.
    pub fn poll(&mut self) -> Result<(), StoreError> {
        self.heed_budget();
        self.drive_and_leave()
    }

    /// Returns whether there is any request to process.
    fn is_busy(&self) -> bool {
        self.flights.in_flight() > 0 || self.any_in_background()
    }

    /// Refuses ids that the store does not have.
    pub(super) fn check_ids(&self, blocks: &[BlockId]) -> Result<(), StoreError> {
        match blocks.iter().find(|block| block.index() >= self.blocks.len()) {
            Some(block) => {
                Err(StoreError::Misuse(format!("there is no block {} among {}", block.0, self.blocks.len())))
            }
            None => Ok(()),
        }
    }

    /// Binds an empty fetch to this store, and refuses one that holds blocks of another store.
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

    /// Accepts blocks from the `first` on as `start` does, without processing requests.
    fn accept(&mut self, fetch: &mut Fetch, blocks: &[BlockId], first: usize, how: Use) -> usize {
        let blocks = &blocks[first..];
        // Resident blocks are leased ahead, so that they are not evicted for blocks before them in
        // the list.
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.clear();
        ahead.extend(blocks.iter().map(|&block| {
            matches!(self.slots.state(block), SlotState::Resident { .. })
                .then(|| self.slots.leases.lease(block))
        }));
        // Leases ahead were released again from this index on.
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
                    let entry = Entry { index: first + index, block, generation };
                    self.counters.hit(block);
                    self.touch(block, how);
                    fetch.held.push(entry);
                    fetch.ready.push_back(entry);
                }
                Accepted::Waiting(generation) => {
                    let entry = Entry { index: first + index, block, generation };
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
            // A demand that has failed and still has requests in the engine: a fetch that joins it
            // gets the same failure.
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

    /// Notes a use of a block that has a slot.
    fn touch(&mut self, block: BlockId, how: Use) {
        if self.order.touch(block, how) {
            self.counters.guess_used(block);
        }
    }

    /// Moves blocks that have arrived from the fetch's waiting blocks to the ready ones.
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

    /// Returns the next block of a fetch that has arrived, if there is one.
    fn hand_out_next(&mut self, fetch: &mut Fetch) -> Result<Option<Ready>, StoreError> {
        let Some(entry) = fetch.ready.pop_front() else { return Ok(None) };
        let handed = self.hand_out(entry);
        fetch.failed = handed.is_err().then_some(entry.index);
        handed.map(Some)
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
