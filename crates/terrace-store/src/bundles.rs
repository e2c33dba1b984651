//! Requests the experts of an MoE block, each with all of its matrices, in portions.
//!
//! The experts of a decoding step are usually one portion. Those of a prompt can be more than the
//! slots hold: then a few portions are in progress at once, and each computed one makes room for
//! the next. What is requested, and when, depends only on the routing and the sizes, not on the
//! timing of the disk, so a replay that computes nothing counts the same.

use crate::block::BlockId;
use crate::error::StoreError;
use crate::fetch::Fetch;
use crate::purpose::Use;
use crate::store::Store;
use std::collections::VecDeque;
use terrace_model::ByteSize;

/// Most portions in progress at once.
const PORTIONS: usize = 4;
/// Experts that slots must hold at once, so that one can be read while another is computed.
const LEAST: u64 = 2;

/// A matrix of an expert that is in its slot.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Index in the list of touched experts.
    pub expert: usize,
    /// Index in the list of the block's matrices.
    pub matrix: usize,
    /// Address of its bytes, valid until the portion is released.
    pub data: *const u8,
}

/// Experts that were requested together.
#[derive(Debug, Default)]
struct Portion {
    fetch: Fetch,
    /// Index of the first expert in the order of requests.
    from: usize,
    /// Number of experts.
    experts: usize,
    /// Number of matrices that have not been returned yet.
    left: usize,
    /// The consumer's count when the last matrix was returned.
    done_at: u64,
    /// Number of experts that the consumer holds longer.
    held: usize,
}

/// The experts of one MoE block in progress. Made once and reused, to keep its memory.
#[derive(Debug)]
pub struct Bundles {
    /// Oldest first.
    portions: VecDeque<Portion>,
    spare: Vec<Portion>,
    /// The first block of each matrix.
    matrices: Vec<BlockId>,
    touched: Vec<u32>,
    /// Indices into `touched` in the order of requests.
    order: Vec<usize>,
    how: Use,
    /// Number of experts requested so far.
    asked: usize,
    /// Number of experts per portion.
    portion: usize,
    /// The blocks of one request, kept for its memory.
    blocks: Vec<BlockId>,
}

impl Default for Bundles {
    fn default() -> Self {
        Self {
            portions: VecDeque::with_capacity(PORTIONS),
            spare: (0..PORTIONS).map(|_| Portion::default()).collect(),
            matrices: Vec::new(),
            touched: Vec::new(),
            order: Vec::new(),
            how: Use::Decode,
            asked: 0,
            portion: 1,
            blocks: Vec::new(),
        }
    }
}

impl Bundles {
    /// Returns whether the store's slots are large enough for whole experts. `matrices` is the
    /// first block of each matrix.
    pub fn suit(store: &Store, matrices: impl Iterator<Item = BlockId>) -> bool {
        Self::least(store, matrices) <= store.capacity()
    }

    /// Returns the fewest bytes of slots that this needs. `matrices` is the first block of each
    /// matrix.
    pub fn least(store: &Store, matrices: impl Iterator<Item = BlockId>) -> ByteSize {
        ByteSize(LEAST * bundle(store, matrices))
    }

    /// Begins an MoE block: releases what is left of the last one, and requests as many of the
    /// `touched` experts as have room.
    ///
    /// # Errors
    /// The same as [`Store::start`].
    pub fn begin(
        &mut self,
        store: &mut Store,
        matrices: impl Iterator<Item = BlockId>,
        touched: &[u32],
        how: Use,
    ) -> Result<(), StoreError> {
        self.end(store);
        self.matrices.clear();
        self.matrices.extend(matrices);
        self.touched.clear();
        self.touched.extend_from_slice(touched);
        self.how = how;
        self.asked = 0;
        let bundle = bundle(store, self.matrices.iter().copied());
        self.portion = portion(store.capacity().bytes(), bundle, touched.len());
        let here = |expert: u32| store.has_slot(BlockId(self.matrices[0].0 + expert));
        self.order.clear();
        match how {
            Use::Decode => self.order.extend(0..touched.len()),
            Use::Sweep => {
                // Experts in slots come first, before the sweep itself takes their room.
                let all = touched.iter().enumerate();
                self.order.extend(all.clone().filter(|(_, expert)| here(**expert)).map(|(i, _)| i));
                self.order.extend(all.filter(|(_, expert)| !here(**expert)).map(|(i, _)| i));
            }
        }
        while self.asked < self.touched.len() && self.portions.len() < PORTIONS {
            if !self.ask(store)? {
                break;
            }
        }
        Ok(())
    }

    /// Releases everything.
    pub fn end(&mut self, store: &mut Store) {
        while self.give_back(store) {}
    }

    /// Returns whether all touched experts have been returned.
    pub fn is_exhausted(&self) -> bool {
        self.asked == self.touched.len() && self.portions.iter().all(|portion| portion.left == 0)
    }

    /// Keeps an expert, all of whose matrices were returned, until [`Bundles::let_go`]. `expert` is its
    /// index in the list of touched experts.
    pub fn hold(&mut self, expert: usize) {
        if let Some(portion) = self.portion_of(expert) {
            portion.held += 1;
        }
    }

    /// Ends a hold.
    pub fn let_go(&mut self, expert: usize) {
        if let Some(portion) = self.portion_of(expert) {
            portion.held -= 1;
        }
    }

    /// Ends all holds.
    pub fn let_all_go(&mut self) {
        self.portions.iter_mut().for_each(|portion| portion.held = 0);
    }

    /// The portion in progress that an expert is in.
    fn portion_of(&mut self, expert: usize) -> Option<&mut Portion> {
        let order = &self.order;
        let is_in = |portion: &Portion| order[portion.from..][..portion.experts].contains(&expert);
        self.portions.iter_mut().find(|portion| is_in(portion))
    }

    /// Returns a matrix that has arrived, without waiting. `now` is the consumer's count of its
    /// steps.
    ///
    /// # Errors
    /// The same as [`Store::next`].
    pub fn try_next(&mut self, store: &mut Store, now: u64) -> Result<Option<Arrived>, StoreError> {
        for at in 0..self.portions.len() {
            while let Some(ready) = store.try_next(&mut self.portions[at].fetch)? {
                if let Some(arrived) = self.hand_out(at, ready.index, ready.data, now) {
                    return Ok(Some(arrived));
                }
            }
        }
        Ok(None)
    }

    /// Waits for a matrix; `None` if none is in progress.
    ///
    /// # Errors
    /// The same as [`Store::next`].
    pub fn next(&mut self, store: &mut Store, now: u64) -> Result<Option<Arrived>, StoreError> {
        if let Some(arrived) = self.try_next(store, now)? {
            return Ok(Some(arrived));
        }
        for at in 0..self.portions.len() {
            while let Some(ready) = store.next(&mut self.portions[at].fetch)? {
                if let Some(arrived) = self.hand_out(at, ready.index, ready.data, now) {
                    return Ok(Some(arrived));
                }
            }
        }
        Ok(None)
    }

    /// Releases portions whose last matrix was returned before the consumer's step `through`, and
    /// requests as many others. Returns false if there are experts left to request, none are in
    /// progress, and there is no room.
    ///
    /// # Errors
    /// The same as [`Store::start`].
    pub fn go_on(&mut self, store: &mut Store, through: u64) -> Result<bool, StoreError> {
        while self.asked < self.touched.len() {
            let computed = self
                .portions
                .front()
                .is_some_and(|oldest| oldest.left == 0 && oldest.held == 0 && oldest.done_at < through);
            if computed {
                self.give_back(store);
            } else if !self.portions.is_empty() {
                return Ok(true);
            }
            if !self.ask(store)? && self.portions.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn hand_out(&mut self, at: usize, index: usize, data: *const u8, now: u64) -> Option<Arrived> {
        let portion = &mut self.portions[at];
        let (expert, matrix) = (index / self.matrices.len(), index % self.matrices.len());
        if expert >= portion.experts {
            // Only a part of this expert had room; it is requested again with the next portion.
            return None;
        }
        portion.left -= 1;
        portion.done_at = now;
        Some(Arrived { expert: self.order[portion.from + expert], matrix, data })
    }

    /// Releases the oldest portion; returns false if there is none.
    fn give_back(&mut self, store: &mut Store) -> bool {
        let Some(mut portion) = self.portions.pop_front() else { return false };
        store.release(&mut portion.fetch);
        self.spare.push(portion);
        true
    }

    /// Requests the next portion; returns false if there is no room for any of it.
    fn ask(&mut self, store: &mut Store) -> Result<bool, StoreError> {
        let rest = &self.order[self.asked..];
        self.blocks.clear();
        for &index in &rest[..rest.len().min(self.portion)] {
            let expert = self.touched[index];
            self.blocks.extend(self.matrices.iter().map(|first| BlockId(first.0 + expert)));
        }
        let Some(mut portion) = self.spare.pop() else { return Ok(false) };
        // Portions in progress will make room; without any, one expert must fit now.
        let least = if self.portions.is_empty() { self.matrices.len() } else { 1 };
        let accepted = store.start_at_least(&mut portion.fetch, &self.blocks, self.how, least);
        let experts = match &accepted {
            Ok(blocks) => blocks / self.matrices.len(),
            Err(_) => 0,
        };
        if experts == 0 {
            store.release(&mut portion.fetch);
            self.spare.push(portion);
            return accepted.map(|_| false);
        }
        portion.from = self.asked;
        portion.experts = experts;
        portion.left = experts * self.matrices.len();
        portion.held = 0;
        self.asked += experts;
        self.portions.push_back(portion);
        Ok(true)
    }
}

/// Returns the bytes of the slots of one expert.
fn bundle(store: &Store, matrices: impl Iterator<Item = BlockId>) -> u64 {
    matrices.map(|first| store.slot_size(first).bytes()).sum::<u64>().max(1)
}

/// Returns the number of experts per portion: all, if they take at most half of the slots, or as
/// many as let [`PORTIONS`] portions share the slots.
fn portion(slots: u64, bundle: u64, touched: usize) -> usize {
    let fit = |bytes: u64| usize::try_from(bytes / bundle).unwrap_or(usize::MAX);
    if fit(slots / 2) >= touched {
        return touched.max(1);
    }
    fit(slots / PORTIONS as u64).max(1)
}
