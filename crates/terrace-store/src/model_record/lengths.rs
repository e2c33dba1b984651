//! Lengths of a model's prompts and answers.

use super::WEIGHT;
use serde::{Deserialize, Serialize};

/// Maximum length that is believed, in tokens: more than any context has.
const LONGEST: u64 = 1 << 26;

/// Totals of all answers, earlier runs with less weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lengths {
    /// Number of runs.
    runs: u32,
    answers: u64,
    /// Evaluated tokens of their prompts.
    prompt_tokens: u64,
    /// Generated tokens.
    output_tokens: u64,
}

/// Mean lengths in tokens, rounded such that they rarely change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsualLengths {
    pub prompt: u32,
    pub output: u32,
    /// Number of runs that they are from.
    pub runs: u32,
}

impl Lengths {
    /// Adds an answer.
    pub fn count(&mut self, prompt: usize, output: usize) {
        let weighted = |tokens: usize| (tokens as u64).saturating_mul(WEIGHT);
        self.runs = 1;
        self.answers = self.answers.saturating_add(WEIGHT);
        self.prompt_tokens = self.prompt_tokens.saturating_add(weighted(prompt));
        self.output_tokens = self.output_tokens.saturating_add(weighted(output));
    }

    /// Returns true if there were no answers.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds those of a run to half of these.
    pub const fn followed_by(&self, run: &Self) -> Self {
        Self {
            runs: self.runs.saturating_add(run.runs),
            answers: (self.answers / 2).saturating_add(run.answers),
            prompt_tokens: (self.prompt_tokens / 2).saturating_add(run.prompt_tokens),
            output_tokens: (self.output_tokens / 2).saturating_add(run.output_tokens),
        }
    }

    /// The mean lengths; `None` if there were no answers.
    pub fn usual(&self) -> Option<UsualLengths> {
        let mean = |tokens: u64| rounded(tokens.checked_div(self.answers)?);
        Some(UsualLengths {
            prompt: mean(self.prompt_tokens)?,
            output: mean(self.output_tokens)?,
            runs: self.runs,
        })
    }

    /// Returns true if runs can have counted these.
    pub(super) fn is_believable(&self) -> bool {
        self.is_empty() || self.runs > 0 && self.usual().is_some()
    }
}

/// Rounds a length to the closest power of two, or to the middle between two: a plan should change
/// when the work does, and not with every answer. At least 1; `None` if it is not believed.
fn rounded(tokens: u64) -> Option<u32> {
    let tokens = tokens.max(1);
    if tokens > LONGEST {
        return None;
    }
    let below: u64 = 1 << tokens.ilog2();
    let steps = [below, below + below / 2, 2 * below];
    let closest = steps.into_iter().min_by_key(|step| step.abs_diff(tokens));
    closest.and_then(|step| u32::try_from(step).ok())
}
