//! Errors of evaluations.

use crate::base_logits::error::BaseLogitsError;
use terrace_engine::EngineError;

/// Why an evaluation ended without a result. Displays as one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// The engine failed.
    #[error(transparent)]
    Engine(Box<EngineError>),
    /// The text is too short to measure anything on.
    #[error("the text has {tokens} tokens, but chunks of {context} need at least {}", 2 * context)]
    TextTooShort {
        /// Tokens of the text.
        tokens: usize,
        /// Tokens in a chunk.
        context: usize,
    },
    /// Chunks are so small that nothing could be scored.
    #[error("chunks of {context} tokens are too small to be scored")]
    ChunkTooSmall {
        /// Tokens in a chunk.
        context: usize,
    },
    /// The model's logits are not numbers.
    #[error("the model's logits are not numbers: {0}")]
    NoNumbers(String),
    /// A task does not fit a batch.
    #[error("the task at line {line} has {tokens} tokens, but a batch holds only {room}")]
    TaskTooLong {
        /// The line of the file, 1-based.
        line: usize,
        /// Its tokens, counting those that its endings share once.
        tokens: usize,
        /// Tokens that fit a batch.
        room: usize,
    },
    /// The endings of a task have no common beginning.
    #[error("the endings of the task at line {line} share no context")]
    TaskWithoutContext {
        /// The line of the file, 1-based.
        line: usize,
    },
    /// The context has too few sequences.
    #[error("the context has {there} sequences, but {needed} are needed")]
    Sequences {
        /// Sequences needed.
        needed: u32,
        /// Sequences of the context.
        there: u32,
    },
    /// The model's graphs do not show where layers end.
    #[error("this model's graphs do not show where layers end")]
    NoLayers,
    /// A base file cannot be used or written.
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
