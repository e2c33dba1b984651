//! Prompts that are evaluated in one pass, each with the bits of a pass of its own.
//!
//! With streamed weights, a short prompt takes as long as reading them, so those that wait together share
//! that. llama.cpp puts sequences with caches of their own into one graph if their numbers follow each other
//! and each has as many tokens: the shorter ones are filled up with tokens that are dropped afterwards.

use super::Worker;
use crate::options::{BatchSlots, ServingOptions, SharePasses};
use crate::slot::Slot;
use std::ops::Range;
use std::thread::sleep;
use std::time::{Duration, Instant};
use terrace_backend::{PassKind, Passes, Prompts, Unclear};
use terrace_engine::steps::cannot_check;
use terrace_engine::{Engine, Session};

/// A prompt waits for others that come at the same time for this fraction of the time that the last one took,
/// or this long if there was none yet.
const GATHER: u32 = 50;
const GATHER_FIRST: Duration = Duration::from_millis(20);
const GATHER_MOST: Duration = Duration::from_millis(50);
/// Interval between checks for waiting prompts.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// After this many graphs that were made otherwise than those of a single prompt, prompts are evaluated one
/// by one.
const STRIKES: u32 = 3;

/// Sharing of passes by prompts.
#[derive(Debug)]
pub struct PromptsTogether {
    on: bool,
    /// True if they do even when nothing is read from disk.
    always: bool,
    /// Most tokens that a slot may hold; attention windows hide some keys from those that hold more.
    most_held: usize,
    strikes: u32,
    /// Number of jobs that had begun when others were last waited for.
    gathered: u64,
}

/// The rest of a slot's prompt.
#[derive(Clone, Copy, Debug)]
struct Left {
    tokens: usize,
    held: usize,
}

impl PromptsTogether {
    pub fn new(engine: &Engine, options: &ServingOptions) -> Self {
        let unlike =
            engine.uses_devices() || engine.draft_counts().is_some() || cannot_check(engine).is_some();
        let share = match options.share_passes {
            _ if options.batch_slots == BatchSlots::Off => false,
            SharePasses::Never => false,
            SharePasses::WhereReadsDecide => engine.store_stats().is_some(),
            SharePasses::Always => true,
        };
        let window = match engine.model().sliding_window() {
            0 => usize::MAX,
            window => window as usize,
        };
        Self {
            on: share && !unlike,
            always: options.share_passes == SharePasses::Always,
            most_held: window.min(engine.context_size()),
            strikes: 0,
            gathered: 0,
        }
    }

    /// The slots around `first` whose prompts are evaluated in one pass of up to `most` tokens. `left`: what is
    /// left of a slot's prompt, if it may share a pass with that of `first`.
    fn choose(
        &self,
        first: usize,
        slots: usize,
        most: usize,
        left: impl Fn(usize) -> Option<Left>,
    ) -> Range<usize> {
        let fits = |range: Range<usize>| {
            let (mut own, mut longest, mut held) = (0, 0, 0);
            for slot in range.clone() {
                // A lone token has kernels of its own.
                let Some(left) = left(slot).filter(|left| left.tokens > 1) else { return false };
                (own, longest, held) = (own + left.tokens, longest.max(left.tokens), held.max(left.held));
            }
            let all = longest * range.len();
            // Filling up must not cost more than the prompts themselves.
            all <= most && all <= 2 * own && held + longest <= self.most_held
        };
        let mut range = first..first + 1;
        while range.end < slots && fits(range.start..range.end + 1) {
            range.end += 1;
        }
        while range.start > 0 && fits(range.start - 1..range.end) {
            range.start -= 1;
        }
        range
    }

    fn avoid(&mut self, unclear: Unclear) {
        self.strikes += if unclear == Unclear::Graph { 1 } else { STRIKES };
        if self.strikes >= STRIKES {
            tracing::info!(?unclear, "prompts are evaluated one by one");
            self.on = false;
        }
    }
}

impl Worker {
    /// Gives other prompts that come at the same time a moment, if reading what a prompt needs takes long.
    pub(super) fn gather(&mut self) {
        let prompts = &self.prompts;
        let alone = !self.slots.iter().any(Slot::wants_decode);
        let long = match self.pace.waited() {
            Some(Duration::ZERO) => GATHER_FIRST,
            Some(last) => (last / GATHER).min(GATHER_MOST),
            None if prompts.always => GATHER_FIRST,
            None => return,
        };
        if !prompts.on || prompts.gathered == self.begun || !alone {
            return;
        }
        let until = Instant::now() + long;
        while Instant::now() < until && self.slots.iter().any(Slot::is_idle) {
            sleep(POLL_INTERVAL);
            self.admit();
        }
        self.prompts.gathered = self.begun;
    }

    /// The slots whose prompts are evaluated to their ends in one pass with that of slot `first`; that slot
    /// alone if there are none.
    pub(super) fn prompts_with(&self, first: usize) -> Range<usize> {
        let pays = self.prompts.always || self.pace.waited().is_some();
        let parts = self.slots[first].session.left() > self.part();
        if !self.prompts.on || !pays || parts {
            return first..first + 1;
        }
        let most = self.pace.size_together(!self.slots.iter().any(Slot::wants_decode));
        let left = |index: usize| {
            let slot = &self.slots[index];
            let Session { held, media, .. } = &slot.session;
            // Tokens that were chosen before their keys were lost follow one by one.
            let ends = slot.session.batched == slot.session.len();
            let text = media.is_empty() && !slot.session.wants_scores();
            let plain = ends && text && self.is_alike(first, index);
            let whole = slot.session.left() <= self.part();
            (slot.wants_prefill() && plain && whole)
                .then(|| Left { tokens: slot.session.left(), held: *held })
        };
        self.prompts.choose(first, self.slots.len(), most, left)
    }

    /// Evaluates several slots' prompts to their ends in one pass. Returns false if that was not possible, and
    /// nothing was evaluated.
    pub(super) fn evaluate_prompts(&mut self, group: Range<usize>) -> bool {
        if self.engine.awaits_writer() {
            return false;
        }
        let own: Vec<usize> = group.clone().map(|index| self.slots[index].session.left()).collect();
        let prompts = Prompts::new(own.clone());
        let each = prompts.each();
        self.engine.use_scales(&self.slots[group.start].session.scales);
        self.batch.clear();
        for (index, &own) in group.clone().zip(&own) {
            let session = &self.slots[index].session;
            session.add_to(&mut self.batch, own);
            session.fill_up(&mut self.batch, own..each);
        }
        self.count_pass();
        let files = self.engine.check_files();
        if let Some(weights) = self.engine.weights() {
            weights.compute_as(Passes::Prompts(prompts.into()));
        }
        let decoded = files.and_then(|()| Ok(self.engine.decode(&mut self.batch, PassKind::Prefill)?));
        self.engine.compute_alone(0);
        let unclear = self.engine.weights().and_then(|weights| weights.take_unclear());
        if let Some(unclear) = unclear {
            self.prompts.avoid(unclear);
        }
        let good = decoded.is_ok() && unclear.is_none();
        for (index, own) in group.clone().zip(own) {
            let slot = &mut self.slots[index];
            if good {
                slot.session.evaluated(own, self.engine.epoch());
            }
            let held = slot.session.held;
            // What it was filled up with goes, or what a failed pass may have left.
            if slot.session.cut(self.engine.context(), held) != held {
                slot.session.held = held;
                self.totals.recomputed_tokens += slot.forget() as u64;
            }
        }
        if good {
            self.totals.shared_prompts += group.len() as u64;
            self.engine.reloads().cut_short = 0;
            for (row, index) in group.enumerate() {
                // Without drafts, there is no next row.
                let _ = self.choose(index, row);
            }
        }
        good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which slots share a pass with slot `first`; each has this many tokens to evaluate.
    fn chosen(first: usize, most: usize, tokens: &[usize]) -> Range<usize> {
        let together = PromptsTogether { on: true, always: false, most_held: 1000, strikes: 0, gathered: 0 };
        let left = |slot: usize| (tokens[slot] > 0).then_some(Left { tokens: tokens[slot], held: 10 });
        together.choose(first, tokens.len(), most, left)
    }

    #[test]
    fn neighbours_of_like_length_share_a_pass() {
        assert_eq!(chosen(1, 512, &[20, 23, 19, 30]), 0..4);
        assert_eq!(chosen(1, 512, &[20, 23, 0, 30]), 0..2, "slot 2 has none");
        assert_eq!(chosen(3, 512, &[20, 23, 1, 30]), 3..4, "a lone token has other kernels");
        assert_eq!(chosen(0, 512, &[20, 23, 100, 30]), 0..2, "filling up would cost more");
        assert_eq!(chosen(0, 60, &[20, 20, 20, 20]), 0..3, "no more fit a graph");
        assert_eq!(chosen(0, 2048, &[990, 991, 4, 5]), 0..1, "a slot has no room for 1,001 tokens");
        assert_eq!(chosen(0, 2048, &[989, 990, 4, 5]), 0..2);
        assert_eq!(chosen(2, 2048, &[992, 991, 4, 5]), 2..4);
    }
}
