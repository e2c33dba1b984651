//! Jobs, and the events that report on them.

use super::facts::ModelFacts;
use std::ops::{ControlFlow, Deref};
use terrace_engine::{Answer, EngineError, LineLimits, Media, PromptProbs, Prompted, Scales, TokenProbs};
use terrace_ggml::CxxError;
use terrace_ggml::llama::{Sampler, Sampling};

/// A prompt that a model can answer: it is not empty, fits a slot's context, and has only tokens of
/// the vocabulary, and images.
#[derive(Clone, Debug)]
pub struct Prompt(Prompted);

impl Prompt {
    /// Checks a whole prompt, including any part that may be reused, against the model that `facts`
    /// describe.
    ///
    /// # Errors
    /// [`Refused::EmptyPrompt`], [`Refused::TooLong`] or [`Refused::UnknownToken`].
    pub fn new(tokens: impl Into<Prompted>, facts: &ModelFacts) -> Result<Self, Refused> {
        if !facts.generates() {
            return Err(Refused::NotGenerative);
        }
        Self::within(tokens.into(), facts.context, facts)
    }

    /// Checks a text that is to be embedded.
    ///
    /// # Errors
    /// As [`Prompt::new`].
    pub(super) fn embeddable(tokens: Vec<i32>, facts: &ModelFacts) -> Result<Self, Refused> {
        let most = facts.embedding.as_ref().ok_or(Refused::NotEmbedding)?.most;
        Self::within(tokens.into(), most, facts)
    }

    fn within(prompted: Prompted, context: usize, facts: &ModelFacts) -> Result<Self, Refused> {
        let Prompted { tokens, media } = &prompted;
        let (prompt, vocabulary) = (tokens.len(), facts.vocabulary);
        if prompt == 0 {
            return Err(Refused::EmptyPrompt);
        }
        if prompt > context {
            return Err(Refused::TooLong { prompt, context });
        }
        let unknown =
            |&(index, &token): &(usize, &i32)| !facts.has_token(token) && media.span_of(index).is_none();
        if let Some((_, &token)) = tokens.iter().enumerate().find(unknown) {
            return Err(Refused::UnknownToken { token, vocabulary });
        }
        Ok(Self(prompted))
    }

    #[cfg(test)]
    pub(super) fn unchecked(tokens: Vec<i32>) -> Self {
        Self(tokens.into())
    }

    /// Its images.
    pub const fn media(&self) -> &Media {
        &self.0.media
    }

    pub(super) fn into_prompted(self) -> Prompted {
        self.0
    }

    pub(super) fn into_tokens(self) -> Vec<i32> {
        self.0.tokens
    }
}

impl Deref for Prompt {
    type Target = [i32];

    fn deref(&self) -> &[i32] {
        &self.0.tokens
    }
}

/// A request for an answer.
#[derive(Clone, Debug)]
pub struct Job {
    pub prompt: Prompt,
    /// Maximum number of tokens to generate; `None` means until the model ends or the context is
    /// full.
    pub n_max: Option<usize>,
    /// Sampling parameters.
    pub sampling: Sampling,
    /// Texts that end the answer and are not part of it. Empty ones are ignored.
    pub stop: Vec<String>,
    /// Lines that end the answer.
    pub lines: LineLimits,
    /// True if keys and values of an earlier job with the same prefix may be reused. The rest of
    /// the prompt is then evaluated in other batches than the whole would be, and may round
    /// differently.
    pub reuse: bool,
    /// The adapters to compute with. What other ones computed is not reused, and jobs with others are not
    /// computed together with this one.
    pub scales: Scales,
    /// The slot that is to answer it; `None` means any.
    pub slot: Option<usize>,
    /// Number of alternatives reported with their probabilities for each token; `None`: not even
    /// that one.
    pub probs: Option<usize>,
    /// True if these probabilities are those after the samplers, among the tokens that they have left.
    pub after_samplers: bool,
    /// True if tokens are told as soon as they are chosen ([`Event::Token`]).
    pub tokens: bool,
    /// True if the prompt's own tokens are reported so as well, and the token that ends the text. All of
    /// the prompt is then evaluated, whatever [`Job::reuse`] is.
    pub scored: bool,
}

impl Job {
    /// Returns whether what is held of another prompt may serve this one.
    pub(super) const fn reuses(&self) -> bool {
        self.reuse && !self.scores()
    }

    /// Returns whether the prompt's tokens are reported with their probabilities.
    pub(super) const fn scores(&self) -> bool {
        self.scored && self.probs.is_some()
    }
}

/// A job with its sampler, which takes time to make where there is a grammar.
#[derive(Debug)]
pub struct Prepared {
    pub(super) job: Job,
    pub(super) sampler: Sampler,
    /// True if others come first.
    pub(super) background: bool,
}

impl Prepared {
    /// Lets all other jobs come first: they begin before it, it rests while they are computed, and it gives up its
    /// slot ([`Event::Displaced`]) if they have none.
    #[must_use]
    pub fn in_background(self) -> Self {
        Self { background: true, ..self }
    }
}

impl Deref for Prepared {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.job
    }
}

/// Receives the events of a job. It is called on the worker's thread, which computes nothing
/// meanwhile. `Break` cancels the job at once, and the sink is not called again; dropping the job's
/// [`Ticket`](super::Ticket) cancels it from elsewhere.
pub type Sink = Box<dyn FnMut(Event) -> ControlFlow<()> + Send>;

/// An event of a job: `Started`, any number of `Progress`, `Scored` where that is wanted, then any number
/// of `Text`, and finally `Finished`, `Failed` or `Displaced`. A job that ends before it has a slot has no `Started`.
#[derive(Debug)]
pub enum Event {
    /// The job has a slot.
    Started {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Prompt tokens whose keys and values the slot already held.
        reused: usize,
        /// The model's epoch.
        epoch: u64,
    },
    /// A batch of the prompt was evaluated, and more is left: a chance to cancel.
    Progress {
        /// Prompt tokens that are done, including reused ones.
        evaluated: usize,
    },
    /// The prompt was evaluated, and the job wanted its tokens' probabilities.
    Scored(PromptProbs),
    /// More of the answer: bytes that no stop string can still take back. UTF-8 characters may be
    /// split.
    Text(Vec<u8>),
    /// The token chosen since the last event of this kind, if the job wanted that. Comes before its text.
    Token(i32),
    /// The tokens chosen since the last event of this kind, if the job wanted their probabilities.
    /// Comes before their text.
    Probs(Vec<TokenProbs>),
    /// The job is done, or was cancelled.
    Finished(Box<Answer>),
    /// The job has given up its slot to one that came first, and has ended. It may be submitted again.
    Displaced,
    /// The job failed.
    Failed(EngineError),
}

/// Why a job was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The queue is full.
    #[error("the queue is full: {waiting} requests are waiting")]
    Full {
        /// Number of waiting jobs.
        waiting: usize,
    },
    /// There is nothing to evaluate.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// The prompt does not fit a slot's context.
    #[error("the prompt has {prompt} tokens, but the context holds only {context}")]
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Capacity of a slot in tokens.
        context: usize,
    },
    /// A number is not a token of the vocabulary.
    #[error("token {token} is not in the vocabulary of {vocabulary} tokens")]
    UnknownToken {
        /// The number.
        token: i32,
        /// Size of the vocabulary.
        vocabulary: usize,
    },
    /// llama.cpp refuses the sampler's parameters or the grammar.
    #[error("the sampler cannot be made: {0}")]
    Sampling(CxxError),
    /// The model only embeds texts.
    #[error("the model embeds texts, and does not generate")]
    NotGenerative,
    /// The model was loaded without embeddings.
    #[error("the model was not loaded for embeddings")]
    NotEmbedding,
    /// More texts or values than are computed at once.
    #[error("{count} {what} are asked for at once, but at most {most} are computed")]
    TooMuch {
        /// The resource that is exceeded.
        what: &'static str,
        /// Its number.
        count: usize,
        most: usize,
    },
    /// The worker has ended.
    #[error("the engine is shutting down")]
    Stopped,
}
