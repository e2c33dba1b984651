//! Guesses: blocks that may be needed soon, read while there is no demand.

use super::Store;
use crate::block::BlockId;
use crate::error::StoreError;
use crate::purpose::Purpose;
use crate::slots::SlotState;
use std::collections::VecDeque;
use terrace_model::ByteSize;

/// A guess expires if it was used neither in the token in which it was made nor in the next.
const LIFETIME: u64 = 2;

/// Most waiting guesses. More than the experts of a few layers would be outdated before the disk
/// had read them.
const MOST_WAITING: usize = 1024;

/// Guesses that were not passed to the engine.
#[derive(Debug)]
pub(super) struct Speculation {
    /// The guesses in the order of likelihood, with their tokens.
    queue: VecDeque<(BlockId, u64)>,
    /// True for blocks that are in the queue.
    queued: Box<[bool]>,
    /// Most bytes of slots for guesses that are in flight, or resident and not used.
    cap: u64,
}

impl Speculation {
    pub fn new(blocks: usize, cap: ByteSize) -> Self {
        let queue = VecDeque::with_capacity(MOST_WAITING.min(blocks));
        Self { queue, queued: vec![false; blocks].into(), cap: cap.0 }
    }

    fn pop(&mut self) -> Option<BlockId> {
        let (block, _) = self.queue.pop_front()?;
        self.queued[block.index()] = false;
        Some(block)
    }

    /// Drops the guesses of token `last` and before, and returns their number.
    fn drop_until(&mut self, last: u64) -> u64 {
        let mut dropped = 0;
        while self.queue.front().is_some_and(|(_, token)| *token <= last) {
            self.pop();
            dropped += 1;
        }
        dropped
    }
}

impl Store {
    /// Reads blocks ahead that may be needed soon, the most likely first. They are not leased.
    /// Blocks that have a slot or are already guessed are skipped, and so are the rest when 1024
    /// are waiting. Returns the number of accepted guesses.
    ///
    /// Guesses are passed to the engine while no demand waits, within
    /// [`Store::set_speculation_cap`]. They take free room, or that of disposable blocks and of
    /// blocks that were used neither in this token nor in the last ([`Store::next_token`]); a guess
    /// without room is dropped. A guess that is not used [expires](Store::expire_speculation). A
    /// read that fails is counted and logged.
    ///
    /// # Errors
    /// [`StoreError::Engine`] if the engine stopped working; [`StoreError::Misuse`] for ids that
    /// the store does not have.
    pub fn speculate(&mut self, blocks: &[BlockId]) -> Result<usize, StoreError> {
        self.check_ids(blocks)?;
        if self.speculation.cap == 0 {
            return Ok(0);
        }
        let token = self.order.token();
        let mut taken = 0;
        for &block in blocks {
            if self.speculation.queue.len() == MOST_WAITING {
                break;
            }
            let queued = &mut self.speculation.queued[block.index()];
            if !*queued && matches!(self.slots.state(block), SlotState::Empty) {
                *queued = true;
                self.speculation.queue.push_back((block, token));
                taken += 1;
            }
        }
        self.drive(false)?;
        Ok(taken)
    }

    /// Sets the most bytes of slots for guesses that are in flight, or resident and not used. 0,
    /// the default, means no guesses.
    pub fn set_speculation_cap(&mut self, cap: ByteSize) {
        self.speculation.cap = cap.0;
        if cap.0 == 0 {
            self.expire_speculation();
        }
    }

    /// Returns whether guesses may take any room.
    pub fn speculates(&self) -> bool {
        self.speculation.cap > 0
    }

    /// Expires all guesses so far: those that were not passed to the engine are dropped, and those
    /// that were read and not used are evicted first when room is needed.
    pub fn expire_speculation(&mut self) {
        self.expire_until(self.order.token());
    }

    /// Begins the next graph: uses from now on belong to the next token. Guesses of the token
    /// before the last expire.
    pub fn next_token(&mut self) {
        self.order.next_token();
        self.rows.next_pass();
        if let Some(timeline) = &mut self.timeline {
            timeline.pass();
        }
        self.heed_budget();
        self.end_overdraft();
        self.expire_until(self.order.token() - LIFETIME);
    }

    fn expire_until(&mut self, last: u64) {
        self.counters.total.speculation_expired += self.speculation.drop_until(last);
        while let Some(block) = self.order.expire_one(last) {
            self.counters.guess_wasted(block);
        }
    }

    /// Removes a block that was requested from the queue.
    pub(super) fn forget_guess(&mut self, block: BlockId) {
        if std::mem::take(&mut self.speculation.queued[block.index()]) {
            self.speculation.queue.retain(|(other, _)| *other != block);
        }
    }

    /// Takes the next guess, and gives it a slot.
    pub(super) fn next_guess(&mut self) -> Option<BlockId> {
        let (block, size) = loop {
            let &(block, _) = self.speculation.queue.front()?;
            let size = self.slot_size(block).0;
            if matches!(self.slots.state(block), SlotState::Empty) && size <= self.speculation.cap {
                break (block, size);
            }
            self.speculation.pop();
            self.counters.total.speculation_expired += 1;
        };
        if self.order.guessed() + size > self.speculation.cap {
            // Waits until others are used or expire.
            return None;
        }
        let Some(place) = self.make_room_for_guess(block, size) else {
            // There will hardly be room before these are outdated.
            self.counters.total.speculation_expired += self.speculation.drop_until(u64::MAX);
            return None;
        };
        self.speculation.pop();
        self.slots.begin(block, place);
        self.order.begin(block, Purpose::Speculation);
        self.counters.speculated(block, self.hull(block).len);
        Some(block)
    }

    /// Returns whether guesses are waiting.
    pub(super) fn any_guess_waits(&self) -> bool {
        !self.speculation.queue.is_empty()
    }

    /// Drops waiting guesses when the store is dropped.
    pub(super) fn drop_guesses(&mut self) {
        self.speculation.drop_until(u64::MAX);
    }
}
