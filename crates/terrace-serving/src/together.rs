//! Which slots' next tokens are computed in one pass: with the bits that each has alone, or as ggml
//! computes them.

use crate::options::{BatchSlots, ServingOptions};
use std::collections::BTreeSet;
use terrace_backend::Unclear;
use terrace_engine::Engine;
use terrace_engine::steps::{MOST_DRAFTS, MOST_DRAFTS_WITH_EXPERTS, cannot_check};

/// After this many graphs that were made otherwise than those of single tokens, slots are computed one
/// by one.
const STRIKES: u32 = 3;

/// Chooses the slots that are computed together.
#[derive(Debug)]
pub struct Together {
    /// Maximum number of slots in a pass.
    most: usize,
    /// True if each token gets the bits that it has alone.
    exact: bool,
    /// Slots that hold more tokens are computed alone; attention windows hide some keys from them.
    window: usize,
    /// True if a single token was computed since graphs were found to be made otherwise.
    seen: bool,
    strikes: u32,
    /// Numbers of slots that are not computed together.
    avoided: BTreeSet<usize>,
}

impl Together {
    pub fn new(engine: &Engine, options: &ServingOptions) -> Self {
        let exact = options.batch_slots == BatchSlots::Exact;
        let alone =
            engine.uses_devices() || engine.draft_counts().is_some() || cannot_check(engine).is_some();
        let most = match options.batch_slots {
            BatchSlots::On => engine.batch(),
            BatchSlots::Exact if !alone && options.lockstep.is_some() => options.slots as usize,
            BatchSlots::Exact if !alone => 1 + MOST_DRAFTS as usize,
            BatchSlots::Off | BatchSlots::Exact => 1,
        };
        let window = match engine.model().sliding_window() {
            window if exact && window > 0 => window as usize,
            _ => usize::MAX,
        };
        Self { most, exact, window, seen: false, strikes: 0, avoided: BTreeSet::new() }
    }

    /// Returns whether tokens get the bits that they have alone.
    pub const fn is_exact(&self) -> bool {
        self.exact
    }

    /// Returns the number of the first slots of `ready`, in order, that one pass computes next. `held`: how
    /// many tokens a slot holds.
    pub fn take(&mut self, ready: &[usize], held: impl Fn(usize) -> usize) -> usize {
        if self.exact && !std::mem::replace(&mut self.seen, true) {
            return 1;
        }
        let fits = |&slot: &usize| held(slot) < self.window;
        // llama.cpp computes sequences with caches of their own in one graph only if their numbers
        // follow each other.
        let follow = |&(at, &slot): &(usize, &usize)| !self.exact || slot == ready[0] + at && fits(&slot);
        let run = ready.iter().enumerate().take_while(follow).count().max(1);
        // Two passes of four are no slower than one of seven and one of one.
        let mut size = run.div_ceil(run.div_ceil(self.most));
        while self.exact && self.avoided.contains(&size) {
            size -= 1;
        }
        size
    }

    /// Notes why a pass of `slots` slots is not to be computed again.
    pub fn avoid(&mut self, unclear: Unclear, slots: usize) {
        match unclear {
            Unclear::Tokens => drop(self.avoided.insert(slots)),
            Unclear::Experts => self.most = 1 + MOST_DRAFTS_WITH_EXPERTS as usize,
            Unclear::Unseen => self.seen = false,
            Unclear::Graph | Unclear::Keys => {
                (self.seen, self.strikes) = (false, self.strikes + 1);
                if self.strikes == STRIKES {
                    tracing::info!(?unclear, "slots are computed one by one");
                    self.most = 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn together(most: usize, exact: bool) -> Together {
        Together { most, exact, window: 100, seen: true, strikes: 0, avoided: BTreeSet::new() }
    }

    /// Groups of slots that hold as many tokens as ten times their number.
    fn groups(together: &mut Together, mut ready: &[usize]) -> Vec<usize> {
        let mut sizes = Vec::new();
        while !ready.is_empty() {
            let size = together.take(ready, |slot| 10 * slot);
            sizes.push(size);
            ready = &ready[size..];
        }
        sizes
    }

    #[test]
    fn groups_are_of_neighbours_and_of_like_sizes() {
        let mut exact = together(7, true);
        assert_eq!(groups(&mut exact, &[0, 1, 2, 3, 4, 5, 6, 7]), [4, 4]);
        assert_eq!(groups(&mut exact, &[0, 2, 3, 4, 6]), [1, 3, 1]);
        assert_eq!(groups(&mut exact, &[8, 9, 10, 11]), [2, 1, 1], "windows hide keys from the last two");
        assert_eq!(groups(&mut together(16, false), &[0, 2, 3, 10, 11]), [5]);
        assert_eq!(groups(&mut together(1, true), &[0, 1, 2]), [1, 1, 1]);
        assert_eq!(
            groups(&mut Together { window: usize::MAX, ..together(64, true) }, &(0..64).collect::<Vec<_>>()),
            [64]
        );
        let many: Vec<usize> = (0..64).collect();
        assert_eq!(groups(&mut together(2048, false), &many), [64]);
    }

    #[test]
    fn unclear_passes_are_avoided() {
        let mut exact = together(7, true);
        exact.avoid(Unclear::Tokens, 4);
        exact.avoid(Unclear::Tokens, 64);
        assert_eq!(groups(&mut exact, &[0, 1, 2, 3]), [3, 1]);
        exact.avoid(Unclear::Unseen, 3);
        assert_eq!(groups(&mut exact, &[0, 1, 2, 3]), [1, 3], "a single token comes first");
        for _ in 0..STRIKES {
            exact.avoid(Unclear::Graph, 3);
        }
        assert_eq!(groups(&mut exact, &[0, 1, 2]), [1, 1, 1]);
    }
}
