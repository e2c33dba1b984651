//! The result of a generation: its tokens, why it ended, and how long it took.

use crate::experts::ExpertsUsed;
use crate::lossy::LossyUsed;
use crate::token_probs::TokenProbs;
use serde::Serialize;
use terrace_store::StoreStats;

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model generated an end-of-text token.
    EndOfText,
    /// The requested number of tokens was reached.
    Length,
    /// One of a job's stop strings.
    StopString,
    /// The caller or an interrupt ended it.
    Cancelled,
    /// The context has no room for another token.
    ContextFull,
}

/// Wall-clock durations in milliseconds, and rates in tokens per second. Batches computed for
/// others in between count.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Timings {
    /// Evaluating the prompt.
    pub prompt_ms: f64,
    /// Generating, from the first token to the last.
    pub decode_ms: f64,
    /// From the call, or from the job's submission, to the first token.
    pub ttft_ms: f64,
    /// Evaluated prompt tokens per second.
    pub prompt_tps: f64,
    /// Generated tokens per second, not counting the first one, which comes with the prompt. The
    /// token that ends the text counts.
    pub decode_tps: f64,
    /// Passes over the layers that those tokens took: one each, or fewer with drafts.
    pub decode_passes: usize,
    /// Drafts that these passes checked.
    pub drafted: usize,
    /// Drafts that were the tokens chosen.
    pub accepted: usize,
}

/// A completed generation.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The tokens, without the one that ended it. Tokens that contain a stop string are included.
    pub tokens: Vec<i32>,
    /// Their probabilities, if the caller wanted them.
    pub probs: Vec<TokenProbs>,
    /// Their bytes, without the stop string; UTF-8 unless the answer ends within a character.
    pub text: Vec<u8>,
    /// Why it ended.
    pub stop: StopReason,
    /// The text that ended it, for [`StopReason::StopString`].
    pub stop_string: Option<String>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Prompt tokens that were not evaluated because a slot already held them.
    pub reused: usize,
    /// Its times.
    pub timings: Timings,
    /// Milliseconds spent waiting for a slot.
    pub queued_ms: f64,
    /// The oldest epoch of the keys and values that the first token was computed from, and the
    /// epoch at the last token. If they are equal, all tokens come from one state of the model.
    pub epochs: (u64, u64),
    /// Store counters from the first token to the last. `None` in stock runs, and where other jobs
    /// are answered at the same time.
    pub decode: Option<StoreStats>,
    /// Uses of experts meanwhile. `None` outside of a server, for models without experts,
    /// and where nothing is to be reported.
    pub experts: Option<ExpertsUsed>,
    /// The loss. `None` if generation is exact.
    pub lossy: Option<LossyUsed>,
}

impl Answer {
    /// Makes the answer of a job that was cancelled before it began.
    pub fn not_begun(prompt_tokens: usize, queued_ms: f64, epoch: u64) -> Self {
        Self {
            tokens: Vec::new(),
            probs: Vec::new(),
            text: Vec::new(),
            stop: StopReason::Cancelled,
            stop_string: None,
            prompt_tokens,
            reused: 0,
            timings: Timings::default(),
            queued_ms,
            epochs: (epoch, epoch),
            decode: None,
            experts: None,
            lossy: None,
        }
    }
}
