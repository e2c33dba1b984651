//! What callers ask for, and what they are told.

use super::facts::ModelFacts;
use crate::answer::Answer;
use crate::error::EngineError;
use std::ops::{ControlFlow, Deref};
use terrace_ggml::llama::Sampling;

/// A prompt that a model can answer: it is not empty, a slot's context holds it, and the vocabulary has its tokens.
#[derive(Clone, Debug)]
pub struct Prompt(Vec<i32>);

impl Prompt {
    /// The whole prompt, what may be reused included, for the model that `facts` describe.
    ///
    /// # Errors
    /// [`Refused`], for what is wrong with it.
    pub fn new(tokens: Vec<i32>, facts: &ModelFacts) -> Result<Self, Refused> {
        let (prompt, context, vocabulary) = (tokens.len(), facts.context, facts.vocabulary);
        if prompt == 0 {
            return Err(Refused::EmptyPrompt);
        }
        if prompt > context {
            return Err(Refused::TooLong { prompt, context });
        }
        if let Some(&token) = tokens.iter().find(|&&token| !facts.has_token(token)) {
            return Err(Refused::UnknownToken { token, vocabulary });
        }
        Ok(Self(tokens))
    }

    #[cfg(test)]
    pub(super) const fn unchecked(tokens: Vec<i32>) -> Self {
        Self(tokens)
    }

    pub(super) fn into_tokens(self) -> Vec<i32> {
        self.0
    }
}

impl Deref for Prompt {
    type Target = [i32];

    fn deref(&self) -> &[i32] {
        &self.0
    }
}

/// A prompt to be answered.
#[derive(Clone, Debug)]
pub struct Job {
    /// The prompt.
    pub prompt: Prompt,
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

/// Told what becomes of a job. It is called on the worker's thread, which computes nothing meanwhile. `Break` cancels the job at
/// once, and the sink is not called again; dropping its [`Ticket`](super::Ticket) does so from elsewhere.
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
    /// A batch of the prompt was evaluated, and there is more of it: a chance to cancel it.
    Progress {
        /// Tokens of the prompt that are done, reused ones included.
        evaluated: usize,
    },
    /// More of the answer: bytes that no stop string can take back. UTF-8 characters may be cut.
    Text(Vec<u8>),
    /// It is done, or was cancelled.
    Finished(Box<Answer>),
    /// It could not be done.
    Failed(EngineError),
}

/// Why a job was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// As many jobs wait as may.
    #[error("the queue is full: {waiting} requests are waiting")]
    Full {
        /// Jobs that wait.
        waiting: usize,
    },
    /// Nothing to evaluate.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// More prompt than context.
    #[error("the prompt has {prompt} tokens, but the context holds only {context}")]
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that a slot holds.
        context: usize,
    },
    /// A token that is none.
    #[error("token {token} is not in the vocabulary of {vocabulary} tokens")]
    UnknownToken {
        /// The number.
        token: i32,
        /// Tokens that there are.
        vocabulary: usize,
    },
    /// The worker has ended.
    #[error("the engine is shutting down")]
    Stopped,
}
