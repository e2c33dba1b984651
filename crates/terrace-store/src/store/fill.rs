//! Filling free room while a model is already in use.

use super::Store;
use crate::block::BlockId;
use crate::error::StoreError;
use crate::purpose::Purpose;
use crate::slots::SlotState;
use terrace_model::ByteSize;

/// Longest delay of a demand by filling, in seconds.
const DELAY_SECONDS: f64 = 2e-3;
/// Rate in 10^9 bytes per second if none was measured: that of a typical NVMe disk.
pub(super) const DEFAULT_GBPS: f64 = 2.0;

/// The blocks to fill free room with.
#[derive(Debug, Default)]
pub(super) struct Fill {
    blocks: Vec<BlockId>,
    /// Index of the first block that was neither read nor skipped.
    next: usize,
    /// Bytes of the slots of the blocks from `next` on.
    rest: u64,
}

impl Fill {
    /// Returns the bytes in flight at which no filling request is sent, for a device with `gbps` x
    /// 10^9 bytes per second.
    pub fn most_bytes(gbps: f64) -> u64 {
        (gbps * 1e9 * DELAY_SECONDS) as u64
    }
}

impl Store {
    /// Reads blocks in this order into free room only: nothing is evicted for them. They are
    /// neither leased nor waited for, and all other reads have priority. They are passed to the
    /// engine when [`Store::start`], [`Store::next`] or [`Store::poll`] finds it nearly idle, as
    /// many at a time as the disk reads within about 2 ms, so that a demand waits no longer than
    /// that. The rest of an earlier list is dropped.
    ///
    /// Blocks that have a slot, or for which there is no room, are skipped. Blocks of the list that
    /// were read by filling or by a [sweep](crate::Use::Sweep) stay until their room is needed.
    /// They are evicted before blocks that were used in decoding and after what a sweep leaves, the
    /// last of the list first, until the next list is given. A read that fails is counted and
    /// logged.
    ///
    /// # Errors
    /// [`StoreError::Engine`] if the engine stopped working; [`StoreError::Misuse`] for ids that
    /// the store does not have.
    pub fn fill(&mut self, blocks: Vec<BlockId>) -> Result<(), StoreError> {
        self.check_ids(&blocks)?;
        self.order.keep(&blocks);
        let rest = blocks.iter().map(|block| self.slot_size(*block).0).sum();
        self.fill = Fill { blocks, next: 0, rest };
        self.drive(false)
    }

    /// Returns whether blocks of [`Store::fill`] are waiting or being read.
    pub fn filling(&self) -> bool {
        let partial = self.background.partial.map(|block| self.order.purpose(block));
        self.any_left_to_fill() || partial == Some(Purpose::Fill) || self.flights.filling() > 0
    }

    /// Returns the bytes of slots of the blocks of [`Store::fill`] that were not passed to the
    /// engine yet.
    pub fn left_to_fill(&self) -> ByteSize {
        ByteSize(self.fill.rest)
    }

    /// Returns whether the list has not ended.
    pub(super) fn any_left_to_fill(&self) -> bool {
        self.fill.next < self.fill.blocks.len()
    }

    /// Takes the next block that has free room, and gives it a slot.
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

    /// Recounts the rest after blocks have changed their sizes.
    pub(super) fn recount_filling(&mut self) {
        let left = self.fill.blocks.get(self.fill.next..).unwrap_or_default();
        self.fill.rest = left.iter().map(|block| self.slot_size(*block).0).sum();
    }

    /// Drops the rest of the list when the store is dropped.
    pub(super) fn stop_filling(&mut self) {
        self.fill = Fill::default();
    }
}
