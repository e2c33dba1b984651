//! Blocks that may be needed soon, read while no others are asked for.

use super::Store;
use crate::block::BlockId;
use crate::error::StoreError;
use crate::purpose::Purpose;
use crate::slots::SlotState;
use std::collections::VecDeque;
use terrace_model::ByteSize;

/// A guess that was not used in the token that it was made in, nor in the next, was wrong.
const LIFETIME: u64 = 2;

/// Guesses that wait at most. More than a few layers' experts would be out of date before the disk had read them.
const MOST_WAITING: usize = 1024;

/// Guesses that the engine has not got.
#[derive(Debug)]
pub(super) struct Speculation {
    /// In the order of likelihood, with the token of the guess.
    queue: VecDeque<(BlockId, u64)>,
    /// By block: whether it is in the queue.
    queued: Box<[bool]>,
    /// Bytes of the slots that guesses may have, in flight or there and not used.
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

    /// Drops what was guessed in token `last` or before; how many there were.
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
    /// Reads blocks ahead, most likely first, that may be asked for soon. They are not leased. Those that have a slot, or
    /// are guessed already, are passed over, and so is what follows when 1024 wait. Returns how many were taken.
    ///
    /// The engine gets them while no demand waits, within [`Store::set_speculation_cap`], into free room, or the room of
    /// disposable blocks and of blocks that were not used in this token or the last ([`Store::next_token`]); what then
    /// finds no room is dropped. A guess that is not asked for [expires](Store::expire_speculation). A read that fails is
    /// counted and logged, and that is all.
    ///
    /// # Errors
    /// [`StoreError::Engine`] if the engine broke down; [`StoreError::Misuse`] for ids that the store does not have.
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

    /// Bytes of slots that guesses may have, in flight or there and not used yet; 0 (the default): no speculation.
    pub fn set_speculation_cap(&mut self, cap: ByteSize) {
        self.speculation.cap = cap.0;
        if cap.0 == 0 {
            self.expire_speculation();
        }
    }

    /// Whether guesses may have any room.
    pub fn speculates(&self) -> bool {
        self.speculation.cap > 0
    }

    /// What was guessed so far was wrong: what the engine has not got is dropped, what was read and not used is the first
    /// to go when room is needed.
    pub fn expire_speculation(&mut self) {
        self.expire_until(self.order.token());
    }

    /// A graph begins: uses from now on are of the next token. Guesses of the token before the last expire.
    pub fn next_token(&mut self) {
        self.order.next_token();
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

    /// The block is asked for.
    pub(super) fn forget_guess(&mut self, block: BlockId) {
        if std::mem::take(&mut self.speculation.queued[block.index()]) {
            self.speculation.queue.retain(|(other, _)| *other != block);
        }
    }

    /// The next guess, placed.
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
            // Until others are used or expire.
            return None;
        }
        let Some(place) = self.make_room_for_guess(block, size) else {
            // There will hardly be room before these are out of date.
            self.counters.total.speculation_expired += self.speculation.drop_until(u64::MAX);
            return None;
        };
        self.speculation.pop();
        self.slots.begin(block, place);
        self.order.begin(block, Purpose::Speculation);
        self.counters.speculated(block, self.hull(block).len);
        Some(block)
    }

    /// Whether guesses wait for the engine.
    pub(super) fn any_guess_waits(&self) -> bool {
        !self.speculation.queue.is_empty()
    }

    /// Drops what waits, for a store that goes.
    pub(super) fn drop_guesses(&mut self) {
        self.speculation.drop_until(u64::MAX);
    }
}
