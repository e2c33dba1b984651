//! Why a batch cannot begin or go on.

use std::io;
use std::path::PathBuf;

/// Why a batch cannot begin or go on. What is wrong with one request is an answer to it, and not here.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// A file cannot be read or written.
    #[error("{}: {source}", .path.display())]
    Io {
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The journal is not one, or its line cannot be read.
    #[error("{}: line {line}: {reason}", .path.display())]
    Journal {
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        reason: String,
    },
    /// The journal has answers of another model, or to other requests.
    #[error("{} has answers {what}", .path.display())]
    Other {
        path: PathBuf,
        /// Of or to what.
        what: String,
    },
    /// Another process writes the journal.
    #[error("{}: another process is answering this batch", .0.display())]
    Locked(PathBuf),
    /// No more requests are answered: the model is lost, or the server ends.
    #[error("the model answers no more requests: {0}")]
    Stopped(String),
}

impl BatchError {
    /// An error of a file.
    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |source| Self::Io { path, source }
    }
}
