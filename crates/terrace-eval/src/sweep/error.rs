//! Errors of sweeps.

use crate::base_logits::error::BaseLogitsError;
use crate::error::EvalError;
use std::io;
use std::path::PathBuf;
use terrace_engine::{EngineError, ReloadError};
use terrace_ggml::gguf::GgufError;
use terrace_plan::mix::MixError;

/// Why a sweep ended. Displays as one line. Earlier measurements are in the journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// A measurement failed.
    #[error(transparent)]
    Eval(Box<EvalError>),
    /// The caller ended it.
    #[error("interrupted")]
    Cancelled,
    /// A donor cannot be read.
    #[error(transparent)]
    Donor(#[from] Box<GgufError>),
    /// The journal cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Another sweep is writing to the journal.
    #[error("{}: another sweep is writing to it", .0.display())]
    Locked(PathBuf),
    /// The file is not a journal, or is damaged before its end.
    #[error("{}, line {line}: not a sweep journal: {reason}", path.display())]
    Journal {
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// The fault.
        reason: String,
    },
    /// The journal belongs to another sweep.
    #[error("{}: made with a different {what}", path.display())]
    Other {
        path: PathBuf,
        /// The difference.
        what: &'static str,
    },
    /// No tensor matches the pattern.
    #[error("`{0}` matches the name of no matrix of this model")]
    NoSubjects(String),
    /// The model does not reproduce its baseline.
    #[error("the model differs after {after}: perplexity {now}, but {was} at first")]
    NotRestored {
        /// The step before.
        after: String,
        /// The perplexity now.
        now: f64,
        /// The baseline's perplexity.
        was: f64,
    },
    /// A tensor did not return to what was loaded.
    #[error("{0} did not return to its loaded bytes")]
    NotReturned(String),
    /// No mix was found.
    #[error(transparent)]
    Mix(#[from] MixError),
}

impl From<EvalError> for SweepError {
    fn from(error: EvalError) -> Self {
        match error {
            EvalError::Cancelled => Self::Cancelled,
            other => Self::Eval(Box::new(other)),
        }
    }
}

impl From<EngineError> for SweepError {
    fn from(error: EngineError) -> Self {
        EvalError::from(error).into()
    }
}

impl From<ReloadError> for SweepError {
    fn from(error: ReloadError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<BaseLogitsError> for SweepError {
    fn from(error: BaseLogitsError) -> Self {
        EvalError::from(error).into()
    }
}
