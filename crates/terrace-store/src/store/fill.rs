//! Filling free room while a model already answers.

use super::Store;
use crate::block::BlockId;
use crate::error::StoreError;
use crate::purpose::Purpose;
use crate::slots::SlotState;
use terrace_model::ByteSize;

/// How long a demand may find the disk busy with filling.
const DELAY_SECONDS: f64 = 2e-3;
/// Bytes per second where none were measured, in 10^9: a usual NVMe disk's.
pub(super) const DEFAULT_GBPS: f64 = 2.0;

/// What is left to be read.
#[derive(Debug, Default)]
pub(super) struct Fill {
    blocks: Vec<BlockId>,
    /// Those before were given to the engine, or passed over.
    next: usize,
    /// Bytes of the slots of the others.
    rest: u64,
}

impl Fill {
    /// Bytes in flight from which on no filling request follows, for a device of 10^9 x `gbps` bytes per second.
    pub fn most_bytes(gbps: f64) -> u64 {
        (gbps * 1e9 * DELAY_SECONDS) as u64
    }
}

impl Store {
    /// Reads blocks in this order into room that is free, and only into that: nothing goes for them. They are neither
    /// leased nor waited for, and everything else goes first; the engine gets them while [`Store::start`],
    /// [`Store::next`] and [`Store::poll`] are called and find it (nearly) idle, as many at a time as the disk reads
    /// within about 2 ms, which is what a demand then waits at most. What was left of an earlier list is dropped.
    ///
    /// Blocks that are there, or find no room, are passed over. What is filled, and what a [sweep](crate::Use::Sweep) reads
    /// of the list, stays until its room is needed: it goes before what was used in decoding and after what a sweep leaves,
    /// the last of the list first. That holds until the next list. A read that fails is counted and logged, and that is all.
    ///
    /// # Errors
    /// [`StoreError::Engine`] if the engine broke down; [`StoreError::Misuse`] for ids that the store does not have.
    pub fn fill(&mut self, blocks: Vec<BlockId>) -> Result<(), StoreError> {
        self.check_ids(&blocks)?;
        self.order.keep(&blocks);
        let rest = blocks.iter().map(|block| self.slot_size(*block).0).sum();
        self.fill = Fill { blocks, next: 0, rest };
        self.drive(false)
    }

    /// Whether blocks of [`Store::fill`] are still to be read, or on their way.
    pub fn filling(&self) -> bool {
        let partial = self.background.partial.map(|block| self.order.purpose(block));
        self.any_left_to_fill() || partial == Some(Purpose::Fill) || self.flights.filling() > 0
    }

    /// Bytes of slots of the blocks of [`Store::fill`] that the engine was not given yet.
    pub fn left_to_fill(&self) -> ByteSize {
        ByteSize(self.fill.rest)
    }

    /// Whether the list has not come to its end.
    pub(super) fn any_left_to_fill(&self) -> bool {
        self.fill.next < self.fill.blocks.len()
    }

    /// The next block for free room, placed.
    pub(super) fn next_to_fill(&mut self) -> Option<BlockId> {
        if self.any_guess_waits() {
            return None;
        }
        while let Some(&block) = self.fill.blocks.get(self.fill.next) {
            let size = self.slot_size(block).0;
            self.fill.next += 1;
            self.fill.rest -= size;
            if !matches!(self.slots.state(block), SlotState::Empty) {
                continue;
            }
            if let Some(place) = self.alloc(size) {
                self.slots.begin(block, place);
                self.order.begin(block, Purpose::Fill);
                self.counters.total.filled += 1;
                self.counters.total.filled_bytes.0 += self.hull(block).len;
                return Some(block);
            }
        }
        self.fill = Fill::default();
        None
    }

    /// Blocks have other sizes.
    pub(super) fn recount_filling(&mut self) {
        let left = self.fill.blocks.get(self.fill.next..).unwrap_or_default();
        self.fill.rest = left.iter().map(|block| self.slot_size(*block).0).sum();
    }

    /// Drops what is left, for a store that goes.
    pub(super) fn stop_filling(&mut self) {
        self.fill = Fill::default();
    }
}
