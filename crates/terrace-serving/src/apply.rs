//! Learn files that callers want applied.

use terrace_engine::ApplyOutcome;
use terrace_model::learn::LearnFile;

/// Called with the outcome of an apply.
pub type ApplyDone = Box<dyn FnOnce(ApplyOutcome) + Send>;

/// A learn file to apply.
pub struct Apply {
    pub file: LearnFile,
    pub done: ApplyDone,
}
