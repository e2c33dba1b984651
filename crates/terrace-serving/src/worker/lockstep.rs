//! The order of work for batches: all that counts is how soon the last job is done.
//!
//! Where weights stream, a pass costs what it reads, almost whatever the number of its tokens. So all slots that
//! generate share one pass, for which llama.cpp wants them to be neighbours: a slot that becomes free is filled by the
//! last one that works. Free slots are filled again several at a time, since a prompt alone would read as much as all
//! slots do for a token. And prompts that begin alike begin with a copy of what one of them has computed.

use super::Worker;
use crate::slot::Slot;
use terrace_engine::prompt_cache::Kept;
use terrace_engine::prompt_cache::usable::{Memory, common};
use terrace_ggml::llama::StateError;
use terrace_plan::batches::refilled_together;

/// Tokens of an answer, as long as none has ended.
const ANSWER: u64 = 128;

impl Worker {
    /// Most tokens of a prompt that are evaluated at once.
    pub(super) fn part(&self) -> usize {
        self.lockstep.and_then(|lockstep| lockstep.part).unwrap_or(usize::MAX).max(1)
    }

    /// The first of `same` tokens after which a prompt goes on with the bits that it has alone; all of them where
    /// bits may differ.
    pub(super) fn in_whole_parts(&self, same: usize) -> usize {
        if self.lockstep.is_none() {
            return same;
        }
        let part = self.part().min(self.pace.size(true));
        if self.memory == Memory::Rows { same - same % part } else { 0 }
    }

    /// Returns whether free slots are filled now.
    pub(super) fn may_refill(&self) -> bool {
        if self.lockstep.is_none() {
            return true;
        }
        let free = self.slots.iter().filter(|slot| slot.is_idle()).count();
        let generate = self.slots.iter().any(|slot| !slot.is_idle());
        // Where nothing is waited for, a prompt takes the time of its tokens, with others or without.
        let many = if self.pace.waited().is_some() { self.refilled_together() } else { 1 };
        !generate || free >= many.min(self.queue.waiting(|_| true))
    }

    /// Number of free slots that are filled together, at most.
    fn refilled_together(&self) -> usize {
        let ended = &self.totals.ended;
        let answers = ended.end_of_text + ended.length + ended.stop_string + ended.context_full;
        let length = self.totals.generated_tokens.checked_div(answers).unwrap_or(ANSWER);
        refilled_together(self.slots.len(), length)
    }

    /// Moves jobs such that the slots that work are the first ones.
    pub(super) fn close_ranks(&mut self) {
        let working = self.slots.iter().filter(|slot| !slot.is_idle()).count();
        while let Some(to) = self.slots[..working].iter().position(Slot::is_idle) {
            let Some(from) = self.slots.iter().rposition(|slot| !slot.is_idle()) else { return };
            if let Err(error) = self.exchange(from, to) {
                self.emptied(&error);
            }
            // Even without its keys and values, which are computed again then.
            debug_assert!(
                self.slots[from].is_idle() && !self.slots[to].is_idle(),
                "they have been exchanged"
            );
        }
    }

    /// Moves the job in a slot to a free one, with all that is held for it. What the free one held is lost.
    ///
    /// # Errors
    /// llama.cpp refused it; the job has moved all the same.
    fn exchange(&mut self, from: usize, to: usize) -> Result<(), StateError> {
        let Self { engine, slots, .. } = self;
        slots[to].checkpoint = None;
        let copied = if slots[from].session.held == 0 {
            slots[to].session.cut(engine.context(), 0);
            slots[to].session.clear();
            Ok(())
        } else {
            engine
                .copy_session(&slots[from].session, None)
                .and_then(|kept| engine.put_session(&mut slots[to].session, &kept))
        };
        let [left, right] = slots.get_disjoint_mut([from, to]).expect("two slots");
        // Positions count, not tokens, where images are among them.
        right.session.media = left.session.media.clone();
        std::mem::swap(left, right);
        std::mem::swap(&mut left.session.sequence, &mut right.session.sequence);
        copied
    }

    /// Has prompts that are to be evaluated begin with what other slots hold of them.
    pub(super) fn share_prefixes(&mut self) {
        // Others wait until the first one that has begun is evaluated: they may begin as it does.
        let Some(first) = self.slots.iter().position(Slot::wants_prefill) else { return };
        let begun = |slot: &Slot| {
            slot.work.as_ref().is_some_and(|work| !work.generation.is_new())
                || slot.session.held > slot.work.as_ref().map_or(0, |work| work.generation.reused())
        };
        if self.memory != Memory::Rows || begun(&self.slots[first]) {
            return;
        }
        // What was copied last, of which slot.
        let mut copied: Option<(usize, Kept)> = None;
        for index in first..self.slots.len() {
            let slot = &self.slots[index];
            let takes = slot.wants_prefill()
                && !begun(slot)
                && slot.session.media.is_empty()
                && slot.work.as_ref().is_some_and(|work| work.reuses);
            let Some((from, same)) = takes.then(|| self.longest_prefix(index)).flatten() else { continue };
            let taken = self.take_prefix(index, from, same, &mut copied);
            if let Err(error) = taken {
                self.emptied(&error);
                return;
            }
        }
    }

    /// The slot that holds most of a slot's prompt, and how many of its tokens, in whole parts; `None` if it holds
    /// as many itself.
    fn longest_prefix(&self, index: usize) -> Option<(usize, usize)> {
        let session = &self.slots[index].session;
        let same = |other: &Slot| {
            let theirs = &other.session;
            let usable = theirs.media.is_empty()
                && theirs.scales == session.scales
                && theirs.epoch == self.engine.epoch();
            let most = session.batched.saturating_sub(1);
            if usable {
                self.in_whole_parts(common(&theirs.tokens[..theirs.held], &session.tokens).min(most))
            } else {
                0
            }
        };
        let others = self.slots.iter().enumerate().filter(|&(other, _)| other != index);
        let (from, same) = others.map(|(other, slot)| (other, same(slot))).max_by_key(|&(_, same)| same)?;
        (same > session.held).then_some((from, same))
    }

    /// Copies the first `same` tokens' keys and values from one slot to another.
    ///
    /// # Errors
    /// llama.cpp refused it; all slots may be empty then.
    fn take_prefix(
        &mut self,
        index: usize,
        from: usize,
        same: usize,
        copied: &mut Option<(usize, Kept)>,
    ) -> Result<(), StateError> {
        let Self { engine, slots, .. } = self;
        let begins = |kept: &Kept| common(&kept.tokens, &slots[index].session.tokens) >= same;
        let kept = match copied.take().filter(|(of, kept)| *of == from && begins(kept)) {
            Some((_, kept)) => kept,
            None => engine.copy_session(&slots[from].session, None)?,
        };
        let slot = &mut slots[index];
        // The prompt itself stays.
        let tokens = std::mem::take(&mut slot.session.tokens);
        let (batched, scored) = (slot.session.batched, slot.session.scored);
        let put = engine.put_session(&mut slot.session, &kept);
        let held = put.map(|()| slot.session.cut(engine.context(), same));
        (slot.session.tokens, slot.session.batched, slot.session.scored) = (tokens, batched, scored);
        slot.session.held = *held.as_ref().unwrap_or(&0);
        if let Some(work) = &mut slot.work {
            work.generation.reuse(slot.session.held);
        }
        *copied = Some((from, kept));
        held.map(drop)
    }
}
