//! What was generated, why it ended, and how long it took.

use serde::Serialize;
use terrace_store::StoreStats;

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model said so.
    EndOfText,
    /// As many tokens as asked for.
    Length,
    /// One of a [job](crate::serving::Job)'s stop strings.
    StopString,
    /// The caller or an interrupt.
    Cancelled,
    /// No room for another token.
    ContextFull,
}

/// How long it took, in milliseconds and tokens per second, by the clock: batches of others in between are part of it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Timings {
    /// Evaluating the prompt.
    pub prompt_ms: f64,
    /// Generating, from the first token to the last.
    pub decode_ms: f64,
    /// From the call, or from when the job was submitted, to the first token.
    pub ttft_ms: f64,
    /// Prompt tokens per second, of those that were evaluated.
    pub prompt_tps: f64,
    /// Generated tokens per second, the first not counted: it comes with the prompt.
    pub decode_tps: f64,
}

/// What was generated.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The tokens, without the one that ended it. With a stop string, the tokens that it was in are there.
    pub tokens: Vec<i32>,
    /// Their bytes, without the stop string; UTF-8 unless it ends within a character.
    pub text: Vec<u8>,
    /// Why it ended.
    pub stop: StopReason,
    /// The text that ended it, for [`StopReason::StopString`].
    pub stop_string: Option<String>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, those that were not evaluated: a slot had them.
    pub reused: usize,
    /// How long it took.
    pub timings: Timings,
    /// Milliseconds until it had a slot.
    pub queued_ms: f64,
    /// The model's epoch after the first token, keys and values that were there before included, and at the last: if they
    /// are equal, all tokens are of one state of the model.
    pub epochs: (u64, u64),
    /// What the store did from the first token to the last. `None` in stock runs, and where others are answered at the same
    /// time.
    pub decode: Option<StoreStats>,
}

impl Answer {
    /// An answer that was cancelled before it began.
    pub(crate) fn not_begun(prompt_tokens: usize, queued_ms: f64, epoch: u64) -> Self {
        Self {
            tokens: Vec::new(),
            text: Vec::new(),
            stop: StopReason::Cancelled,
            stop_string: None,
            prompt_tokens,
            reused: 0,
            timings: Timings::default(),
            queued_ms,
            epochs: (epoch, epoch),
            decode: None,
        }
    }
}
