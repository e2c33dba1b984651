//! What is evicted when room is needed: the policy's order over the warm blocks, and the blocks that are evicted before and after it.
//!
//! A block that has a slot (is resident, or on its way) has one standing. The policy knows the warm ones only, from their
//! first use as [`Use::Decode`] on:
//!
//! ```text
//! 1. disposable: read for a sweep, or a guess that was wrong. The most recently read goes first.
//! 2. kept: of a list of blocks that are worth their room, and not used as [`Use::Decode`] yet. The last of the list goes first.
//! 3. warm: in the policy's order.
//! 4. disposable, but asked for within this graph and not handed out yet; then guesses that may still come true. Oldest first.
//! ```

use crate::block::BlockId;
use crate::policy::heap::Heap;
use crate::policy::lists::Lists;
use crate::policy::{Policy, Population};
use crate::purpose::{Purpose, Use};
use crate::ranges::{Place, Ranges};
use crate::slots::Slots;

/// How many blocks, in the order of eviction, are passed over in search of one whose slot makes enough room by itself.
const FIT_SEARCH: u32 = 32;
/// How many blocks of the policy's order are looked at in search of one that a guess may replace. Cold ones stand in
/// front; where there are none, a guess is not worth a walk through all.
const COLD_SEARCH: u32 = 128;

const DISPOSABLE: usize = 0;
const GUESSES: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It has no slot.
    Absent,
    /// The policy knows it.
    Warm,
    /// It is of the list of [`EvictionOrder::keep`], and there before its first use.
    Kept,
    Disposable,
    /// Read ahead and not asked for so far.
    Guess,
}

#[derive(Clone, Copy, Debug)]
struct Note {
    /// Bytes of its slot.
    size: u64,
    /// The token that last asked for it, or, of a guess, that it was read ahead in.
    token: u64,
    standing: Standing,
    /// Why it was read.
    purpose: Purpose,
    /// Not handed out since it was read.
    fresh: bool,
}

/// The standing of every block, and with it the order of eviction.
pub(super) struct EvictionOrder {
    policy: Box<dyn Policy>,
    notes: Box<[Note]>,
    lists: Lists,
    /// By worth.
    kept: Heap<u32>,
    /// By block: its place in the list of [`EvictionOrder::keep`], counted from the list's end; 0 if it is not in it.
    worth: Box<[u32]>,
    /// Graphs so far, from 2: a block whose token is 0 was not used for long.
    token: u64,
    /// Bytes of the guesses' slots.
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
        };
        let blocks = population.blocks.len();
        Self {
            policy,
            notes: population.blocks.iter().map(|block| note(block.size)).collect(),
            lists: Lists::new(blocks, 2),
            kept: Heap::new(blocks),
            worth: vec![0; blocks].into(),
            token: 2,
            guessed: 0,
        }
    }

    /// Why the block was read (last).
    pub fn purpose(&self, block: BlockId) -> Purpose {
        self.notes[block.index()].purpose
    }

    /// The token that it is.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// The next one.
    pub fn next_token(&mut self) {
        self.token += 1;
    }

    /// Bytes of slots with guesses in them.
    pub fn guessed(&self) -> u64 {
        self.guessed
    }

    /// From now on these blocks, in order of their worth, stay when a sweep or [`Purpose::Fill`] brings them, or has
    /// brought them. No others do any more; what is kept by an earlier list and not in this one goes first.
    pub fn keep(&mut self, blocks: &[BlockId]) {
        self.worth.fill(0);
        for (block, worth) in blocks.iter().rev().zip(1u32..) {
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

    /// The block, which had no slot, got one.
    pub fn begin(&mut self, block: BlockId, purpose: Purpose) {
        let note = &mut self.notes[block.index()];
        debug_assert_eq!(note.standing, Standing::Absent, "{block:?}");
        (note.purpose, note.fresh) = (purpose, true);
        if purpose != Purpose::Fill {
            note.token = self.token;
        }
        match purpose {
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

    /// The block's read failed, and is repeated because it was asked for meanwhile.
    pub fn begin_again(&mut self, block: BlockId) {
        let note = &mut self.notes[block.index()];
        note.purpose = if note.standing == Standing::Warm { Purpose::Decode } else { Purpose::Sweep };
    }

    /// The block, which has a slot, was asked for. True for a guess that came true with it.
    pub fn touch(&mut self, block: BlockId, how: Use) -> bool {
        let note = &mut self.notes[block.index()];
        note.token = self.token;
        let was = note.standing;
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

    /// The block, which has no slot, is of another size from now on.
    pub fn resized(&mut self, block: BlockId, size: u64) {
        let note = &mut self.notes[block.index()];
        debug_assert_eq!(note.standing, Standing::Absent, "{block:?}");
        note.size = size;
    }

    /// The block's bytes went to whom had asked.
    pub fn handed_out(&mut self, block: BlockId) {
        self.notes[block.index()].fresh = false;
    }

    /// The block has no slot any more. True for a guess that was not asked for.
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

    /// The oldest guess made in `last` or before, which from now on is disposable.
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

    /// The block that makes room of `needed` bytes for `incoming`, which is asked for: one whose slot is enough if there is such a one
    /// among the first of its kind, or else the first.
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
        kept.or_else(|| enough_or_first(|wanted| self.policy.victim(incoming, wanted), needed, slots, ranges))
            .or_else(|| {
                let last = self.lists.oldest_first(DISPOSABLE).chain(self.lists.oldest_first(GUESSES));
                first_fitting(last.map(BlockId), needed, slots, ranges)
            })
    }

    /// The block that is evicted first where there is less room for all.
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

    /// The block that makes room for a guess: as [`EvictionOrder::victim`], but of the kept and warm blocks only one that was not used in this
    /// token or the one before, and whose slot is enough.
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

    /// The disposable block to go first. Those that a graph has asked for ahead and then given back for want of room are
    /// about to be asked for again, and do not count.
    fn disposable(&self, needed: u64, slots: &Slots, ranges: &Ranges) -> Option<BlockId> {
        let in_use = |block: &BlockId| {
            let note = &self.notes[block.index()];
            note.fresh && note.token == self.token
        };
        let newest = self.lists.newest_first(DISPOSABLE).map(BlockId).filter(|block| !in_use(block));
        first_fitting(newest, needed, slots, ranges)
    }
}

/// Of an order, which is looked through for the first that is wanted, an evictable block whose slot makes enough room if it
/// is among the first ones, or else the first.
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

/// Among the first evictable blocks one whose slot makes enough room, or else the first.
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
