//! The order of eviction: the policy's order of warm blocks, and the blocks that are evicted before
//! and after these.
//!
//! Each block that has a slot (resident or being read) has one standing. The policy only knows warm
//! blocks, from their first use as [`Use::Decode`] on. Blocks are evicted in this order:
//!
//! ```text
//! 1. disposable: read for a sweep, a wrong guess, or a block that does not stay. The most recently
//!    read first.
//! 2. kept: in a list of blocks that are worth their room, and not used as [`Use::Decode`]
//!    yet. The last of the list first.
//! 3. warm: in the policy's order.
//! 4. disposable, but requested within this graph and not returned yet; then guesses that
//!    have not expired. The oldest first.
//! ```
//!
//! While blocks are held ([`EvictionOrder::hold`]), warm blocks that are not held come before those that are. What is requested
//! from the second token on, which is the first one again, is read as for a sweep.

use crate::block::BlockId;
use crate::policy::heap::Heap;
use crate::policy::lists::Lists;
use crate::policy::{Policy, Population};
use crate::purpose::{Purpose, Use};
use crate::ranges::{Place, Ranges};
use crate::slots::Slots;
use std::ops::Range;

/// Most blocks in the order of eviction that are checked for one whose slot makes enough room by
/// itself.
const FIT_SEARCH: u32 = 32;
/// Most blocks in the policy's order that are checked for one that a guess may replace. Cold blocks
/// are at the front; if there are none, a guess is not worth checking all.
const COLD_SEARCH: u32 = 128;

const DISPOSABLE: usize = 0;
const GUESSES: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It has no slot.
    Absent,
    /// The policy knows it.
    Warm,
    /// It is in the list of [`EvictionOrder::keep`], and has not been used as [`Use::Decode`].
    Kept,
    Disposable,
    /// It was read as a guess and not requested so far.
    Guess,
}

#[derive(Clone, Copy, Debug)]
struct Note {
    /// Bytes of its slot.
    size: u64,
    /// The token that requested it last; for a guess, the token in which it was read.
    token: u64,
    standing: Standing,
    /// Why it was read.
    purpose: Purpose,
    /// True if it has not been returned to a consumer since it was read.
    fresh: bool,
    /// True if it does not stay: it never becomes warm.
    passing: bool,
}

/// The standing of every block, and with it the order of eviction.
pub(super) struct EvictionOrder {
    policy: Box<dyn Policy>,
    notes: Box<[Note]>,
    lists: Lists,
    /// Kept blocks, ordered by worth.
    kept: Heap<u32>,
    /// The place of each block in the list of [`EvictionOrder::keep`], counted from its end; 0 if
    /// it is not listed.
    worth: Box<[u32]>,
    /// Number of graphs so far, counted from 2, so that a block with token 0 counts as not used
    /// recently.
    token: u64,
    /// The first token whose blocks are held.
    held: Option<u64>,
    /// Bytes of slots with guesses.
    guessed: u64,
}

impl EvictionOrder {
    pub fn new(policy: Box<dyn Policy>, population: &Population) -> Self {
        let note = |size| Note {
            size,
            token: 0,
            standing: Standing::Absent,
            purpose: Purpose::Decode,
            fresh: false,
            passing: false,
        };
        let blocks = population.blocks.len();
        Self {
            policy,
            notes: population.blocks.iter().map(|block| note(block.size)).collect(),
            lists: Lists::new(blocks, 2),
            kept: Heap::new(blocks),
            worth: vec![0; blocks].into(),
            token: 2,
            held: None,
            guessed: 0,
        }
    }

    /// Returns why the block was last read.
    pub fn purpose(&self, block: BlockId) -> Purpose {
        self.notes[block.index()].purpose
    }

    /// Returns the current token.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Begins the next token.
    pub fn next_token(&mut self) {
        self.token += 1;
    }

    /// Holds the blocks that are requested from the next token on, or none any more.
    pub fn hold(&mut self, on: bool) {
        self.held = on.then_some(self.token + 1);
    }

    /// Returns true if a use of the block does not make it stay: it never does, or the token is computed again,
    /// because the first one that was held is over.
    fn passes(&self, block: BlockId) -> bool {
        self.notes[block.index()].passing || self.held.is_some_and(|first| self.token > first)
    }

    /// Returns the bytes of slots with guesses.
    pub fn guessed(&self) -> u64 {
        self.guessed
    }

    /// Notes that these blocks do not stay: they are evicted before all others, as if each use was a
    /// sweep's.
    pub fn pass(&mut self, blocks: Range<BlockId>) {
        for note in &mut self.notes[blocks.start.index()..blocks.end.index()] {
            debug_assert_eq!(note.standing, Standing::Absent, "a block that was used before");
            note.passing = true;
        }
    }

    /// Sets the list of blocks, in the order of their worth, that are kept when a sweep or
    /// [`Purpose::Fill`] reads them or has read them. This replaces an earlier list; blocks that
    /// were kept by that and are not in this one are evicted first among the kept blocks.
    pub fn keep(&mut self, blocks: &[BlockId]) {
        self.worth.fill(0);
        let stay = |block: &&BlockId| !self.notes[block.index()].passing;
        for (block, worth) in blocks.iter().rev().filter(stay).zip(1u32..) {
            self.worth[block.index()] = worth;
        }
        for (block, note) in (0u32..).zip(&mut self.notes) {
            let worth = self.worth[block as usize];
            match note.standing {
                Standing::Kept => self.kept.set(block, worth),
                Standing::Disposable if worth > 0 => {
                    note.standing = Standing::Kept;
                    self.lists.remove(DISPOSABLE, block);
                    self.kept.insert(block, worth);
                }
                _ => {}
            }
        }
    }

    /// Notes that a block without a slot got one.
    pub fn begin(&mut self, block: BlockId, purpose: Purpose) {
        let passes = self.passes(block);
        let note = &mut self.notes[block.index()];
        debug_assert_eq!(note.standing, Standing::Absent, "{block:?}");
        (note.purpose, note.fresh) = (purpose, true);
        if purpose != Purpose::Fill {
            note.token = self.token;
        }
        match purpose {
            Purpose::Decode | Purpose::Caller if passes => {
                note.standing = Standing::Disposable;
                self.lists.append(DISPOSABLE, block.0);
            }
            Purpose::Decode | Purpose::Caller => {
                note.standing = Standing::Warm;
                self.policy.on_insert(block);
            }
            Purpose::Fill => {
                note.standing = Standing::Kept;
                self.kept.insert(block.0, self.worth[block.index()]);
            }
            Purpose::Sweep if self.worth[block.index()] > 0 => {
                note.standing = Standing::Kept;
                self.kept.insert(block.0, self.worth[block.index()]);
            }
            Purpose::Sweep => {
                note.standing = Standing::Disposable;
                self.lists.append(DISPOSABLE, block.0);
            }
            Purpose::Speculation => {
                note.standing = Standing::Guess;
                self.guessed += note.size;
                self.lists.append(GUESSES, block.0);
            }
        }
    }

    /// Notes that the block's read failed, and is repeated because the block was requested
    /// meanwhile.
    pub fn begin_again(&mut self, block: BlockId) {
        let note = &mut self.notes[block.index()];
        note.purpose = if note.standing == Standing::Warm { Purpose::Decode } else { Purpose::Sweep };
    }

    /// Notes that a block with a slot was requested. Returns whether this used a guess.
    pub fn touch(&mut self, block: BlockId, how: Use) -> bool {
        let passes = self.passes(block);
        let note = &mut self.notes[block.index()];
        note.token = self.token;
        let was = note.standing;
        let how = if passes { Use::Sweep } else { how };
        match (was, how) {
            (Standing::Warm, Use::Decode) => self.policy.on_hit(block),
            (Standing::Warm | Standing::Kept | Standing::Disposable, Use::Sweep) => {}
            (Standing::Kept, Use::Decode) => {
                note.standing = Standing::Warm;
                self.kept.remove(block.0);
                self.policy.on_insert(block);
            }
            (Standing::Disposable, Use::Decode) => {
                note.standing = Standing::Warm;
                self.lists.remove(DISPOSABLE, block.0);
                self.policy.on_insert(block);
            }
            (Standing::Guess, Use::Decode) => {
                self.end_guess(block, Standing::Warm);
                self.policy.on_insert(block);
            }
            (Standing::Guess, Use::Sweep) => {
                self.end_guess(block, Standing::Disposable);
                self.lists.append(DISPOSABLE, block.0);
            }
            (Standing::Absent, _) => debug_assert!(false, "{block:?} has no slot"),
        }
        was == Standing::Guess
    }

    /// Changes the size of a block without a slot.
    pub fn resized(&mut self, block: BlockId, size: u64) {
        let note = &mut self.notes[block.index()];
        debug_assert_eq!(note.standing, Standing::Absent, "{block:?}");
        note.size = size;
    }

    /// Notes that the block was returned to a consumer.
    pub fn handed_out(&mut self, block: BlockId) {
        self.notes[block.index()].fresh = false;
    }

    /// Notes that the block has no slot any more. Returns whether it was a guess that was not used.
    pub fn gone(&mut self, block: BlockId) -> bool {
        let was = self.notes[block.index()].standing;
        match was {
            Standing::Warm => self.policy.on_evict(block),
            Standing::Kept => self.kept.remove(block.0),
            Standing::Disposable => self.lists.remove(DISPOSABLE, block.0),
            Standing::Guess => self.end_guess(block, Standing::Absent),
            Standing::Absent => debug_assert!(false, "{block:?} had no slot"),
        }
        self.notes[block.index()].standing = Standing::Absent;
        was == Standing::Guess
    }

    /// Makes the oldest guess of token `last` or before disposable, and returns it; `None` if there
    /// is none.
    pub fn expire_one(&mut self, last: u64) -> Option<BlockId> {
        let block = self.lists.oldest_first(GUESSES).next()?;
        if self.notes[block as usize].token > last {
            return None;
        }
        let block = BlockId(block);
        self.end_guess(block, Standing::Disposable);
        self.lists.append(DISPOSABLE, block.0);
        self.notes[block.index()].fresh = false;
        Some(block)
    }

    fn end_guess(&mut self, block: BlockId, next: Standing) {
        let note = &mut self.notes[block.index()];
        note.standing = next;
        self.guessed -= note.size;
        self.lists.remove(GUESSES, block.0);
    }

    /// Returns the block to evict to make room of `needed` bytes for `incoming`, which was
    /// requested: among the first of a standing one whose slot is enough, or the first.
    pub fn victim(
        &mut self,
        incoming: BlockId,
        needed: u64,
        slots: &Slots,
        ranges: &Ranges,
    ) -> Option<BlockId> {
        if let Some(block) = self.disposable(needed, slots, ranges) {
            return Some(block);
        }
        let kept = enough_or_first(
            |wanted| self.kept.first(&mut |block| wanted(BlockId(block))).map(BlockId),
            needed,
            slots,
            ranges,
        );
        kept.or_else(|| self.unheld(incoming, needed, slots, ranges))
            .or_else(|| enough_or_first(|wanted| self.policy.victim(incoming, wanted), needed, slots, ranges))
            .or_else(|| {
                let last = self.lists.oldest_first(DISPOSABLE).chain(self.lists.oldest_first(GUESSES));
                first_fitting(last.map(BlockId), needed, slots, ranges)
            })
    }

    /// Returns the warm block to evict among those that are not held, if any are held.
    fn unheld(&mut self, incoming: BlockId, needed: u64, slots: &Slots, ranges: &Ranges) -> Option<BlockId> {
        let held = self.held?;
        let (notes, policy) = (&self.notes, &mut self.policy);
        let is_held = |block: BlockId| notes[block.index()].token >= held;
        let mut first = |wanted: &mut dyn FnMut(BlockId) -> bool| {
            policy.victim(incoming, &mut |block| !is_held(block) && wanted(block))
        };
        enough_or_first(&mut first, needed, slots, ranges)
    }

    /// Returns the block to evict if the budget has become smaller.
    pub fn first_out(&mut self, slots: &Slots, ranges: &Ranges) -> Option<BlockId> {
        let evictable = |block: BlockId| slots.evictable(block).is_some();
        self.disposable(0, slots, ranges)
            .or_else(|| self.kept.first(&mut |block| evictable(BlockId(block))).map(BlockId))
            .or_else(|| self.policy.first_out(&mut |block| evictable(block)))
            .or_else(|| {
                let last = self.lists.oldest_first(DISPOSABLE).chain(self.lists.oldest_first(GUESSES));
                last.map(BlockId).find(|block| evictable(*block))
            })
    }

    /// Returns the block to evict for a guess. Like [`EvictionOrder::victim`], but a kept or warm
    /// block must not have been used in this token or the one before, and its slot must be enough.
    pub fn cold_victim(
        &mut self,
        incoming: BlockId,
        needed: u64,
        slots: &Slots,
        ranges: &Ranges,
    ) -> Option<BlockId> {
        if let Some(block) = self.disposable(needed, slots, ranges) {
            return Some(block);
        }
        let (notes, token) = (&self.notes, self.token);
        let enough = |block: BlockId| {
            notes[block.index()].token + 1 < token
                && slots.evictable(block).is_some_and(|place| ranges.hole_after_free(place) >= needed)
        };
        let mut looks = COLD_SEARCH;
        let kept = self.kept.first(&mut |block| {
            looks -= 1;
            looks == 0 || enough(BlockId(block))
        });
        if looks > 0 && kept.is_some() {
            return kept.map(BlockId);
        }
        let mut looks = COLD_SEARCH;
        let warm = self.policy.victim(incoming, &mut |block| {
            looks -= 1;
            looks == 0 || enough(block)
        });
        warm.filter(|_| looks > 0)
    }

    /// Returns the disposable block to evict first. Blocks that the current graph requested ahead,
    /// and released for lack of room, will be requested again and are left out.
    fn disposable(&self, needed: u64, slots: &Slots, ranges: &Ranges) -> Option<BlockId> {
        let in_use = |block: &BlockId| {
            let note = &self.notes[block.index()];
            note.fresh && note.token == self.token
        };
        let newest = self.lists.newest_first(DISPOSABLE).map(BlockId).filter(|block| !in_use(block));
        first_fitting(newest, needed, slots, ranges)
    }
}

/// Returns an evictable block whose slot makes enough room, if there is one among the first of an
/// order, or the first evictable block. `first` searches the order for the first wanted block.
fn enough_or_first(
    mut first: impl FnMut(&mut dyn FnMut(BlockId) -> bool) -> Option<BlockId>,
    needed: u64,
    slots: &Slots,
    ranges: &Ranges,
) -> Option<BlockId> {
    let mut looks = FIT_SEARCH;
    let fitting = first(&mut |block| {
        let Some(place) = slots.evictable(block) else { return false };
        looks = looks.saturating_sub(1);
        looks == 0 || ranges.hole_after_free(place) >= needed
    });
    if looks > 0 && fitting.is_some() {
        return fitting;
    }
    first(&mut |block| slots.evictable(block).is_some())
}

/// Returns an evictable block whose slot makes enough room, if there is one among the first of
/// `order`, or the first evictable block.
fn first_fitting(
    order: impl Iterator<Item = BlockId>,
    needed: u64,
    slots: &Slots,
    ranges: &Ranges,
) -> Option<BlockId> {
    let enough = |place: &Place| ranges.hole_after_free(*place) >= needed;
    let evictable = order.filter_map(|block| Some((block, slots.evictable(block)?)));
    let mut first = None;
    for (block, place) in evictable.take(FIT_SEARCH as usize) {
        if enough(&place) {
            return Some(block);
        }
        first = first.or(Some(block));
    }
    first
}
