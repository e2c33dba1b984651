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

/// Beginning of the recorded text: the longest end of the text that is a beginning of the recording.
fn begin(tokens: &[i32], answer: &[i32]) -> usize {
    let from = tokens.len().saturating_sub(answer.len());
    (from..tokens.len()).find(|&at| answer.starts_with(&tokens[at..])).unwrap_or(tokens.len())
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
        let before = *self.before.get_or_insert_with(|| begin(tokens, &self.recorded.answer));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_goes_on_where_the_text_is() {
        let recorded = Recorded { answer: vec![7, 8, 9, 10, 11], right: 1.0 };
        let mut replay = Replay::new(recorded.clone());
        let mut draft = |tokens: &[i32], most| {
            let mut drafts = Vec::new();
            replay.draft(0, tokens, most, &mut drafts).unwrap();
            drafts
        };
        assert_eq!(draft(&[1, 2, 7, 8], 2), [9, 10]);
        assert_eq!(draft(&[1, 2, 7, 8, 9], 9), [10, 11]);
        assert_eq!(draft(&[1, 2, 7, 8, 9, 10, 11], 9), Vec::<i32>::new());
        let mut wrong = Vec::new();
        Replay::new(Recorded { right: 0.0, ..recorded }).draft(0, &[7], 9, &mut wrong).unwrap();
        assert_eq!(wrong, [7, 8, 9, 10]);
    }
}
