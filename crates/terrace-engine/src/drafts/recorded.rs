//! Drafts from an answer that was recorded, some of them made wrong: the share of right ones is known,
//! so that measurements can be compared.

use super::drafter::{Drafter, Proposal};
use crate::error::EngineError;
use crate::options::Recorded;

/// Proposes the tokens of a recorded answer.
pub struct Replay {
    recorded: Recorded,
    /// Number of tokens before the answer; known when the first draft is asked for.
    before: Option<usize>,
    /// State of the generator of wrong drafts (SplitMix64).
    state: u64,
}

impl Replay {
    pub const fn new(recorded: Recorded) -> Self {
        Self { recorded, before: None, state: 1 }
    }

    /// A number from 0 to 1.
    fn random(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) as f64 / u64::MAX as f64
    }
}

impl Drafter for Replay {
    fn name(&self) -> String {
        "a recorded answer".into()
    }

    fn draft(
        &mut self,
        _sequence: u32,
        tokens: &[i32],
        most: usize,
        drafts: &mut Vec<i32>,
    ) -> Result<Proposal, EngineError> {
        let before = *self.before.get_or_insert(tokens.len().saturating_sub(1));
        let from = tokens.len().saturating_sub(before).min(self.recorded.answer.len());
        for at in (from..self.recorded.answer.len()).take(most) {
            let token = self.recorded.answer[at];
            // Another token of the vocabulary, whatever its size.
            let wrong = if token > 0 { token - 1 } else { 1 };
            drafts.push(if self.random() < self.recorded.right { token } else { wrong });
        }
        Ok(Proposal::default())
    }
}
