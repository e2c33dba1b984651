//! What callers ask for, and what they are told.

use crate::error::EngineError;
use crate::generate::{StopReason, Timings};
use std::ops::ControlFlow;
use terrace_ggml::llama::Sampling;

/// A prompt to be answered.
#[derive(Clone, Debug)]
pub struct Job {
    /// The whole prompt, what may be reused included.
    pub prompt: Vec<i32>,
    /// Tokens to generate at most; none: until the model ends or the context is full.
    pub n_max: Option<usize>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Texts that end the answer, which is then without them. Empty ones are ignored.
    pub stop: Vec<String>,
    /// Whether keys and values of an earlier job with the same beginning may be taken. What is left of the prompt is then
    /// evaluated in other batches than the whole would be, and may round otherwise.
    pub reuse: bool,
}

/// Who is told what becomes of a job. It is called on the worker's thread, which computes nothing meanwhile. `Break`: nobody is
/// there any more. The job then ends at once, and the sink is not called again.
pub type Sink = Box<dyn FnMut(Event) -> ControlFlow<()> + Send>;

/// What becomes of a job: `Started`, any number of `Progress`, then of `Text`, and at last either `Finished` or `Failed`. Jobs
/// that end before they have a slot are not started.
#[derive(Debug)]
pub enum Event {
    /// It has a slot.
    Started {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Of these, those whose keys and values were there already.
        reused: usize,
        /// The model's epoch.
        epoch: u64,
    },
    /// A batch of the prompt was evaluated, and there is more of it: a chance to say that nobody waits any more.
    Progress {
        /// Tokens of the prompt that are done, reused ones included.
        evaluated: usize,
    },
    /// More of the answer: bytes that no stop string can take back. UTF-8 characters may be cut.
    Text(Vec<u8>),
    /// It is done, or was cancelled.
    Finished(Answer),
    /// It could not be done.
    Failed(EngineError),
}

/// How a job ended.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What was generated, without the token that ended it. With a stop string, the tokens that it was in are there.
    pub tokens: Vec<i32>,
    /// Why it ended.
    pub stop: StopReason,
    /// The text that ended it, for [`StopReason::StopString`].
    pub stop_string: Option<String>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of these, those that were not evaluated.
    pub reused: usize,
    /// How long it took, by the clock: others' batches in between are part of it. The time to the first token begins when
    /// the job was submitted; rates are of tokens that were evaluated.
    pub timings: Timings,
    /// Milliseconds until it had a slot.
    pub queued_ms: f64,
    /// The model's epoch behind the first token, reused keys and values included, and at the last: if they are equal, all
    /// tokens are of one state of the model.
    pub epochs: (u64, u64),
}

/// Why a job was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// As many jobs wait as may.
    #[error("{waiting} requests are waiting already")]
    Full {
        /// Jobs that wait.
        waiting: usize,
    },
    /// Nothing to evaluate.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// More prompt than context.
    #[error("the prompt has {prompt} tokens, and the context holds {context}")]
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that a slot holds.
        context: usize,
    },
    /// A token that is none.
    #[error("{token} is not a token: the vocabulary has {vocabulary}")]
    UnknownToken {
        /// The number.
        token: i32,
        /// Tokens that there are.
        vocabulary: usize,
    },
    /// The worker has ended.
    #[error("the engine is stopping")]
    Stopped,
}
