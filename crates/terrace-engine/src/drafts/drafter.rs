//! A source of drafts.

use crate::error::EngineError;
use serde::Serialize;
use std::time::Duration;
use terrace_ggml::llama::Hidden;

/// A source of drafts.
pub(crate) trait Drafter: Send {
    /// Its kind, for a line about it.
    fn name(&self) -> String;

    /// Number of its kinds of proposals; at most [`CLASSES`].
    fn classes(&self) -> usize {
        1
    }

    /// Appends up to `most` tokens to `drafts` that may follow `tokens`, all that a sequence has.
    ///
    /// # Errors
    /// It can propose nothing any more.
    fn draft(
        &mut self,
        sequence: u32,
        tokens: &[i32],
        most: usize,
        drafts: &mut Vec<i32>,
    ) -> Result<Proposal, EngineError>;

    /// Work to catch up before it can propose what follows `tokens`, as a number of passes of
    /// one token of the model that is drafted for.
    fn behind(&self, _sequence: u32, _tokens: &[i32]) -> f64 {
        0.0
    }

    /// Which hidden states of the model's passes it has to see, if any.
    fn hidden(&self) -> Option<Hidden> {
        None
    }

    /// Notes what a pass of the model left.
    ///
    /// # Errors
    /// As [`Drafter::draft`].
    fn saw(&mut self, _pass: &Pass<'_>) -> Result<(), EngineError> {
        Ok(())
    }

    /// The model's weights were replaced.
    fn forget(&mut self) {}
}

/// A pass of the model over tokens of a sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass<'a> {
    pub sequence: u32,
    /// All its tokens up to the last one of the pass, drafts included.
    pub tokens: &'a [i32],
    /// Number of tokens before the pass.
    pub from: usize,
    /// Hidden states of the pass's last tokens, one row each.
    pub hidden: &'a [f32],
}

/// Kinds of proposals that a drafter can tell apart: their shares of right drafts are counted
/// separately.
pub(crate) const CLASSES: usize = 4;

/// Facts about proposed drafts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proposal {
    /// Class of the drafter's certainty; below [`CLASSES`].
    pub class: usize,
    /// Time that the drafts took, without what the drafter had to catch up with.
    pub cost: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DraftCounts {
    /// Passes that evaluated chosen tokens, with drafts or without.
    pub passes: u64,
    /// Drafts that were checked.
    pub drafted: u64,
    /// Drafts accepted.
    pub accepted: u64,
}

impl DraftCounts {
    /// The counts since earlier ones.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            passes: self.passes - earlier.passes,
            drafted: self.drafted - earlier.drafted,
            accepted: self.accepted - earlier.accepted,
        }
    }
}
