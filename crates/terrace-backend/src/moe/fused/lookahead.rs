//! Guesses the experts of the next block, and counts correct guesses.

use super::node::FusedBlock;
use super::router::Guess;
use crate::error::BackendError;
use crate::lossy::{Choice, LossyRouting, reads_less, shares};
use crate::observe::foretold::Foretold;
use crate::routing::Routing;
use terrace_model::LOOKAHEAD_TOKENS;
use terrace_store::{BlockId, Store};

/// Guesses from block to block.
#[derive(Default)]
pub struct Lookahead {
    on: bool,
    memory: Guess,
    /// Choice of experts, if not by score alone.
    lossy: Option<LossyRouting>,
    choice: Choice,
    /// Scores of the likely experts, and their shares.
    likely: Vec<f32>,
    shares: Vec<f32>,
    /// Guessed experts that may be read in fewer bits.
    light: Vec<u32>,
    /// The guess for the next block; empty if there is none.
    guessed: Vec<u32>,
    /// True if that guess does not come from the residual stream.
    mixed: bool,
    /// How often such guesses were right.
    record: TrackRecord,
    blocks: Vec<BlockId>,
    counts: Foretold,
}

impl Lookahead {
    /// Starts a run.
    pub fn begin(&mut self, on: bool) {
        self.on = on;
    }

    /// Has experts guessed as they will be chosen.
    pub fn guess_as(&mut self, lossy: Option<LossyRouting>) {
        self.lossy = lossy;
    }

    /// Forgets the guess, whose block does not come any more.
    pub fn forget(&mut self) {
        self.guessed.clear();
    }

    /// Compares the guess for a block with its router's choice.
    pub fn judge(&mut self, store: &mut Store, routing: &Routing) {
        if !self.on {
            return;
        }
        // Correct guesses have been requested by now; the rest is useless.
        store.expire_speculation();
        if !self.guessed.is_empty() {
            let right = routing.touched().iter().filter(|expert| self.guessed.contains(expert)).count();
            self.counts.chosen += routing.touched().len() as u64;
            self.counts.guessed += right as u64;
            if self.mixed {
                self.record.add(routing.touched().len(), right);
            }
            self.guessed.clear();
        }
    }

    /// Has the experts read that the router of `next` is likely to choose, except those that are
    /// `elsewhere`.
    pub fn guess(
        &mut self,
        store: &mut Store,
        now: &FusedBlock,
        next: &FusedBlock,
        routing: &Routing,
        elsewhere: impl Fn(u32) -> bool,
    ) -> Result<(), BackendError> {
        let (Some(here), Some(there)) = (&now.router, &next.router) else { return Ok(()) };
        let (top_k, tokens) = (routing.top_k(), routing.tokens());
        if !self.on || tokens > LOOKAHEAD_TOKENS {
            return Ok(());
        }
        // The last layer of a prompt computes its last token only.
        let skipped = match next.tokens() {
            same if same == tokens => 0,
            1 => tokens - 1,
            _ => return Ok(()),
        };
        self.guessed.clear();
        self.light.clear();
        self.blocks.clear();
        // Routing is lossy for lone tokens only.
        match self.lossy.filter(|_| tokens == 1) {
            None => {
                let prompts = now.block.prompts.as_deref();
                let own =
                    (skipped..tokens).filter(|&token| prompts.is_none_or(|prompts| prompts.is_own(token)));
                self.guessed.extend_from_slice(there.guess(here, own, top_k, &mut self.memory));
            }
            Some(lossy) => {
                let lossy = lossy.of_layer(next.block.layer());
                let is_here = |expert| {
                    let mut blocks = next.block.first_blocks().map(|first| BlockId(first.0 + expert));
                    elsewhere(expert) || blocks.all(|block| store.is_resident(block))
                };
                let scores = there.scores(here, 0, &mut self.memory);
                self.choice.choose(scores.iter().copied(), false, top_k, &lossy, is_here);
                let likely = &self.choice.order()[..top_k.min(scores.len())];
                // The router's own activation is not computed here: a softmax stands for it.
                self.likely.clear();
                self.likely.extend(likely.iter().map(|&expert| scores[expert as usize]));
                shares(&self.likely, true, &mut self.shares);
                let least = lossy.drop / top_k as f32;
                let weighty =
                    likely.iter().zip(&self.shares).enumerate().filter(|&(place, (&expert, &share))| {
                        place == 0 || share >= least || is_here(expert)
                    });
                self.guessed.extend(weighty.map(|(_, (&expert, _))| expert));
                if next.block.low.is_some() {
                    let least = lossy.low / top_k as f32;
                    let light = likely.iter().zip(&self.shares).skip(lossy.low_keep as usize);
                    self.light.extend(light.filter(|(_, share)| **share < least).map(|(&expert, _)| expert));
                }
            }
        }
        for &expert in self.guessed.iter().filter(|expert| !elsewhere(**expert)) {
            let (full, low) = (|| next.block.first_blocks(), || next.block.first_low_blocks());
            if self.light.contains(&expert) && reads_less(store, expert, full(), low()) {
                self.blocks.extend(low().map(|first| BlockId(first.0 + expert)));
            } else {
                self.blocks.extend(full().map(|first| BlockId(first.0 + expert)));
            }
        }
        self.mixed = !there.knows_stream();
        if !self.mixed || self.record.is_good() {
            store.speculate(&self.blocks)?;
        }
        Ok(())
    }

    /// Takes the counts since the last call.
    pub fn take_counts(&mut self) -> Foretold {
        std::mem::take(&mut self.counts)
    }
}

/// How often guesses were right, of late.
#[derive(Clone, Copy, Default)]
struct TrackRecord {
    chosen: f64,
    right: f64,
}

impl TrackRecord {
    /// Experts that are judged before guesses are read, and after which old ones count for half.
    const LEAST: f64 = 400.0;
    /// The share from which reading the guesses costs the disk less than it saves: what is wrong delays the next block.
    const GOOD: f64 = 0.6;

    fn add(&mut self, chosen: usize, right: usize) {
        if self.chosen >= 2.0 * Self::LEAST {
            (self.chosen, self.right) = (self.chosen / 2.0, self.right / 2.0);
        }
        self.chosen += chosen as f64;
        self.right += right as f64;
    }

    fn is_good(&self) -> bool {
        self.chosen >= Self::LEAST && self.right >= Self::GOOD * self.chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_have_to_be_right_before_they_are_read() {
        let mut record = TrackRecord::default();
        for _ in 0..49 {
            record.add(8, 8);
        }
        assert!(!record.is_good(), "392 experts");
        record.add(8, 8);
        assert!(record.is_good());
        // Old ones do not help.
        for _ in 0..200 {
            record.add(8, 4);
        }
        assert!(!record.is_good());
        for _ in 0..300 {
            record.add(8, 6);
        }
        assert!(record.is_good());
    }
}
