//! Errors of `terrace batch`, with advice.

use std::path::PathBuf;
use terrace_cli::error::Hinted;
use terrace_server::batch::BatchError;

/// Why a batch is not done.
#[derive(Debug, thiserror::Error)]
pub enum Undone {
    /// It cannot begin or go on.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// All requests have answers, but some of these are failures.
    #[error("{failed} of {requests} requests failed")]
    Failed {
        failed: usize,
        requests: usize,
        /// The file with the answers.
        output: PathBuf,
    },
    /// The output is there, and not of these requests.
    #[error("{} has {answers} answers, but there are {requests} requests", .output.display())]
    OtherOutput { output: PathBuf, answers: usize, requests: usize },
}

impl Hinted for Undone {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Failed { output, .. } => {
                Some(format!("{} says why; --retry-failed answers these again", output.display()))
            }
            Self::OtherOutput { .. } => Some("name another file, or remove this one".into()),
            Self::Batch(BatchError::Other { .. } | BatchError::Journal { .. }) => {
                Some("name another output, or remove the file to begin anew".into())
            }
            Self::Batch(_) => None,
        }
    }
}
