//! Why an evaluation ended without a figure.

use crate::base_logits::error::BaseLogitsError;
use terrace_engine::EngineError;

/// Displays as one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// The engine's.
    #[error(transparent)]
    Engine(Box<EngineError>),
    /// Too little text to measure anything on.
    #[error("the text has {tokens} tokens, but chunks of {context} need at least {}", 2 * context)]
    TextTooShort {
        /// Tokens of the text.
        tokens: usize,
        /// Tokens in a chunk.
        context: usize,
    },
    /// Chunks of which nothing could be scored.
    #[error("chunks of {context} tokens are too small to be scored")]
    ChunkTooSmall {
        /// Tokens in a chunk.
        context: usize,
    },
    /// A prediction that is none.
    #[error("the model's logits are not numbers: {0}")]
    NoNumbers(
        /// Where.
        String,
    ),
    /// A task that cannot be evaluated at once.
    #[error("the task at line {line} has {tokens} tokens, but a batch holds only {room}")]
    TaskTooLong {
        /// The line of the file, 1-based.
        line: usize,
        /// Its tokens, what its endings share counted once.
        tokens: usize,
        /// Tokens that are computed at once.
        room: usize,
    },
    /// A task whose endings have nothing in common to go on from.
    #[error("the endings of the task at line {line} share no context")]
    TaskWithoutContext {
        /// The line of the file, 1-based.
        line: usize,
    },
    /// A context of too few sequences.
    #[error("the context has {there} sequences, but {needed} are needed")]
    Sequences {
        /// What it has to have.
        needed: u32,
        /// What it has.
        there: u32,
    },
    /// The graphs of the model do not say where layers end.
    #[error("this model's graphs do not show where layers end")]
    NoLayers,
    /// A file of log probabilities that cannot be used, or not be written.
    #[error(transparent)]
    BaseLogits(#[from] Box<BaseLogitsError>),
    /// The caller ended the evaluation.
    #[error("interrupted")]
    Cancelled,
}

impl From<EngineError> for EvalError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Cancelled => Self::Cancelled,
            other => Self::Engine(Box::new(other)),
        }
    }
}

impl From<BaseLogitsError> for EvalError {
    fn from(error: BaseLogitsError) -> Self {
        Self::BaseLogits(Box::new(error))
    }
}
