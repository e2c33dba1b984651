//! Guesses the experts of the next block, and counts correct guesses.

use super::node::FusedBlock;
use super::router::Guess;
use crate::error::BackendError;
use crate::observe::foretold::Foretold;
use crate::routing::Routing;
use terrace_store::{BlockId, Store};

/// Most tokens in a graph for which guessing is worthwhile: a prefill needs nearly all experts
/// anyway.
const TOKENS: usize = 1;

/// Guesses from block to block.
#[derive(Default)]
pub struct Lookahead {
    on: bool,
    memory: Guess,
    /// The guess for the next block; empty if there is none.
    guessed: Vec<u32>,
    blocks: Vec<BlockId>,
    counts: Foretold,
}

impl Lookahead {
    /// Starts a run.
    pub fn begin(&mut self, on: bool) {
        self.on = on;
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
        let pairs = routing.pairs();
        if !self.on || routing.tokens() > TOKENS {
            return Ok(());
        }
        let likely = there.guess(here, pairs, &mut self.memory);
        self.guessed.clear();
        self.guessed.extend_from_slice(likely);
        self.blocks.clear();
        for &expert in likely.iter().filter(|expert| !elsewhere(**expert)) {
            self.blocks.extend(next.block.first_blocks().map(|first| BlockId(first.0 + expert)));
        }
        store.speculate(&self.blocks)?;
        Ok(())
    }

    /// Takes the counts since the last call.
    pub fn take_counts(&mut self) -> Foretold {
        std::mem::take(&mut self.counts)
    }
}
