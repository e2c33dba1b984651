//! Requests the experts of an MoE block, each with all of its matrices, in portions.
//!
//! The experts of a decoding step are usually one portion. Those of a prompt can be more than the
//! slots hold: then a few portions are in progress at once, and each computed one makes room for
//! the next. What is requested, and when, depends only on the routing and the sizes, not on the
//! timing of the disk, so a replay that computes nothing counts the same.
//!
//! Some experts may be requested as their *small* copies: blocks of another file, of the same matrices
//! in fewer bits. What cannot be read of these is requested in full.

use crate::block::BlockId;
use crate::error::StoreError;
use crate::fetch::{Fetch, Ready};
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

/// The state of a part of a portion.
enum Step {
    Arrived(Arrived),
    /// It is of no use to the consumer.
    Skipped,
    /// There is none now.
    End,
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
    /// The first block of each matrix's small copies; empty if no expert is wanted so.
    small: Vec<BlockId>,
    touched: Vec<u32>,
    /// For each touched expert, whether its small copy is wanted.
    is_small: Vec<bool>,
    /// Indices into `touched` in the order of requests. An expert whose small copy cannot be read is
    /// requested twice.
    order: Vec<usize>,
    /// Places in `order` whose small copies cannot be read.
    lost: Vec<usize>,
    /// The experts of these, by index, until they are taken, and why.
    failures: Vec<(usize, StoreError)>,
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
            small: Vec::new(),
            touched: Vec::new(),
            is_small: Vec::new(),
            order: Vec::new(),
            lost: Vec::new(),
            failures: Vec::new(),
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
        let touched = touched.iter().map(|&expert| (expert, false));
        self.begin_some_small(store, matrices, std::iter::empty(), touched, how)
    }

    /// Does the same as [`Bundles::begin`], but requests small copies of those of the touched experts
    /// that are marked. `small` is the first block of each matrix's small copies. Whatever
    /// their matrices are, an expert's slots are taken to be at most as large as in full.
    ///
    /// # Errors
    /// The same as [`Store::start`].
    pub fn begin_some_small(
        &mut self,
        store: &mut Store,
        matrices: impl Iterator<Item = BlockId>,
        small: impl Iterator<Item = BlockId>,
        touched: impl Iterator<Item = (u32, bool)>,
        how: Use,
    ) -> Result<(), StoreError> {
        self.end(store);
        self.matrices.clear();
        self.matrices.extend(matrices);
        self.small.clear();
        self.small.extend(small);
        self.touched.clear();
        self.is_small.clear();
        for (expert, is_small) in touched {
            self.touched.push(expert);
            self.is_small.push(is_small);
        }
        self.lost.clear();
        self.failures.clear();
        self.how = how;
        self.asked = 0;
        let bundle = bundle(store, self.matrices.iter().copied());
        let touched = &self.touched;
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
        while self.asked < self.order.len() && self.portions.len() < PORTIONS {
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
        self.asked == self.order.len() && self.portions.iter().all(|portion| portion.left == 0)
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
            loop {
                let ready = store.try_next(&mut self.portions[at].fetch);
                match self.step(at, ready, now)? {
                    Step::Arrived(arrived) => return Ok(Some(arrived)),
                    Step::Skipped => {}
                    Step::End => break,
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
            loop {
                let ready = store.next(&mut self.portions[at].fetch);
                match self.step(at, ready, now)? {
                    Step::Arrived(arrived) => return Ok(Some(arrived)),
                    Step::Skipped => {}
                    Step::End => break,
                }
            }
        }
        Ok(None)
    }

    /// Takes an expert whose small copy could not be read, by its index in the list of touched experts,
    /// and why. Nothing more of this copy is returned; the expert comes in full.
    pub fn take_failure(&mut self) -> Option<(usize, StoreError)> {
        self.failures.pop()
    }

    /// Releases portions whose last matrix was returned before the consumer's step `through`, and
    /// requests as many others. Returns false if there are experts left to request, none are in
    /// progress, and there is no room.
    ///
    /// # Errors
    /// The same as [`Store::start`].
    pub fn go_on(&mut self, store: &mut Store, through: u64) -> Result<bool, StoreError> {
        while self.asked < self.order.len() {
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

    /// Notes what the store has returned of a portion.
    fn step(
        &mut self,
        at: usize,
        ready: Result<Option<Ready>, StoreError>,
        now: u64,
    ) -> Result<Step, StoreError> {
        let portion = &mut self.portions[at];
        let (index, data) = match &ready {
            Ok(None) => return Ok(Step::End),
            Ok(Some(ready)) => (Some(ready.index), ready.data),
            Err(_) => (portion.fetch.failed.take(), std::ptr::null()),
        };
        let Some(index) = index else { return ready.map(|_| Step::End) };
        let (expert, matrix) = (index / self.matrices.len(), index % self.matrices.len());
        // If only a part of this expert had room, it is requested again with the next portion.
        let whole = expert < portion.experts;
        let place = portion.from + expert;
        let nth = self.order[place];
        let is_lost = self.lost.contains(&place);
        if let Err(error) = ready {
            let is_small = is_lost || self.is_small[nth];
            if !is_small {
                return Err(error);
            }
            if whole && !is_lost {
                self.lost.push(place);
                self.is_small[nth] = false;
                self.order.push(nth);
                self.failures.push((nth, error));
            }
        }
        if whole {
            portion.left -= 1;
            portion.done_at = now;
        }
        let arrived = whole && !is_lost && !data.is_null();
        Ok(if arrived { Step::Arrived(Arrived { expert: nth, matrix, data }) } else { Step::Skipped })
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
            let is_small = self.is_small[index];
            let firsts = if is_small { &self.small } else { &self.matrices };
            self.blocks.extend(firsts.iter().map(|first| BlockId(first.0 + expert)));
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
