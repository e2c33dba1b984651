//! The experts of an MoE block, each with all of its matrices, asked for in portions.
//!
//! A decode's experts are one portion as a rule. Those of a prefill can be more than the slots hold: then a few portions
//! are under way at once, and the one that is computed makes room for the next. What is asked for, and when, depends on
//! the routing and the sizes alone, not on when the disk answers: a replay that computes nothing counts the same.

use crate::block::BlockId;
use crate::error::StoreError;
use crate::fetch::Fetch;
use crate::purpose::Use;
use crate::store::Store;
use std::collections::VecDeque;
use terrace_model::ByteSize;

/// Portions under way at once at most.
const PORTIONS: usize = 4;
/// Experts that slots must hold at once: one arrives while another is computed.
const LEAST: u64 = 2;

/// A matrix of an expert that is there.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Which of the touched experts.
    pub expert: usize,
    /// Which of the block's matrices.
    pub matrix: usize,
    /// Its bytes, until the portion is given back.
    pub data: *const u8,
}

/// Experts that were asked for together.
#[derive(Debug, Default)]
struct Portion {
    fetch: Fetch,
    /// The first, in the order of asking, and how many.
    from: usize,
    experts: usize,
    /// Matrices not handed out yet.
    left: usize,
    /// When the last of them was, by the consumer's count.
    done_at: u64,
}

/// One MoE block's experts under way. Made once and used again and again, for its memory.
#[derive(Debug)]
pub struct Bundles {
    /// Oldest first.
    portions: VecDeque<Portion>,
    spare: Vec<Portion>,
    /// The first block of each matrix.
    matrices: Vec<BlockId>,
    touched: Vec<u32>,
    /// Indices into `touched` in the order of asking.
    order: Vec<usize>,
    how: Use,
    /// Experts asked for so far, and those of a portion.
    asked: usize,
    portion: usize,
    /// Reused: what one call asks for.
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
    /// Whether the store's slots are large enough for experts as a whole. `matrices`: the first block of each matrix.
    pub fn suit(store: &Store, matrices: impl Iterator<Item = BlockId>) -> bool {
        Self::least(store, matrices) <= store.capacity()
    }

    /// The slots that it takes at least. `matrices`: the first block of each matrix.
    pub fn least(store: &Store, matrices: impl Iterator<Item = BlockId>) -> ByteSize {
        ByteSize(LEAST * bundle(store, matrices))
    }

    /// Begins a block: asks for the `touched` experts, as far as there is room, after giving back what is left of the last
    /// block.
    ///
    /// # Errors
    /// As [`Store::start`].
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
                // Before the sweep itself takes their room.
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

    /// Gives everything back.
    pub fn end(&mut self, store: &mut Store) {
        while self.give_back(store) {}
    }

    /// Whether all touched experts were handed out.
    pub fn is_exhausted(&self) -> bool {
        self.asked == self.touched.len() && self.portions.iter().all(|portion| portion.left == 0)
    }

    /// What has arrived, without waiting; `now` is the consumer's count of what it does.
    ///
    /// # Errors
    /// As [`Store::next`].
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

    /// Waits for something that is under way; `None` if nothing is.
    ///
    /// # Errors
    /// As [`Store::next`].
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

    /// Gives back portions whose last expert was handed out before `through`, and asks for as many others. False if experts
    /// are left to be asked for, none are under way, and there is no room.
    ///
    /// # Errors
    /// As [`Store::start`].
    pub fn go_on(&mut self, store: &mut Store, through: u64) -> Result<bool, StoreError> {
        while self.asked < self.touched.len() {
            let computed =
                self.portions.front().is_some_and(|oldest| oldest.left == 0 && oldest.done_at < through);
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
            // Of an expert that found room for a part only: it comes again with the next portion.
            return None;
        }
        portion.left -= 1;
        portion.done_at = now;
        Some(Arrived { expert: self.order[portion.from + expert], matrix, data })
    }

    /// Ends the oldest portion; false if there is none.
    fn give_back(&mut self, store: &mut Store) -> bool {
        let Some(mut portion) = self.portions.pop_front() else { return false };
        store.release(&mut portion.fetch);
        self.spare.push(portion);
        true
    }

    /// Asks for the next portion; false if there is no room for any of it.
    fn ask(&mut self, store: &mut Store) -> Result<bool, StoreError> {
        let rest = &self.order[self.asked..];
        self.blocks.clear();
        for &index in &rest[..rest.len().min(self.portion)] {
            let expert = self.touched[index];
            self.blocks.extend(self.matrices.iter().map(|first| BlockId(first.0 + expert)));
        }
        let Some(mut portion) = self.spare.pop() else { return Ok(false) };
        let accepted = store.start_as(&mut portion.fetch, &self.blocks, self.how);
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
        self.asked += experts;
        self.portions.push_back(portion);
        Ok(true)
    }
}

/// Bytes of the slots of one expert.
fn bundle(store: &Store, matrices: impl Iterator<Item = BlockId>) -> u64 {
    matrices.map(|first| store.slot_size(first).bytes()).sum::<u64>().max(1)
}

/// Experts of a portion: all, if they take half of the slots at most; else what [`PORTIONS`] of them leave each other.
fn portion(slots: u64, bundle: u64, touched: usize) -> usize {
    let fit = |bytes: u64| usize::try_from(bytes / bundle).unwrap_or(usize::MAX);
    if fit(slots / 2) >= touched {
        return touched.max(1);
    }
    fit(slots / PORTIONS as u64).max(1)
}
