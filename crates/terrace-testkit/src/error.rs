//! What can go wrong while making files.

use std::io;
use std::path::{Path, PathBuf};
use terrace_ggml::gguf::write::HeaderError;
use terrace_ggml::quantize::QuantizeError;

/// Why a synthetic model was not written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The spec contradicts itself or the architecture.
    #[error("{arch}: {reason}")]
    Spec {
        /// The architecture's name.
        arch: &'static str,
        /// What does not fit, with the numbers.
        reason: String,
    },
    /// The header cannot hold something.
    #[error("header of {path}: {source}")]
    Header {
        /// The file.
        path: PathBuf,
        /// What was wrong.
        source: HeaderError,
    },
    /// Weights could not be quantised.
    #[error("tensor `{tensor}`: {source}")]
    Quantize {
        /// The tensor.
        tensor: String,
        /// What was wrong.
        source: QuantizeError,
    },
    /// The file system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// A file that a hostile one was to be made of is not what it must be.
    #[error("{path}: {reason}, at byte {offset}")]
    NotGguf {
        /// The file.
        path: PathBuf,
        /// What was expected there.
        reason: &'static str,
        /// Where.
        offset: u64,
    },
}

impl Error {
    /// For `map_err` on file operations.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    /// For `map_err` on header operations.
    pub(crate) fn header(path: &Path) -> impl FnOnce(HeaderError) -> Self {
        move |source| Self::Header { path: path.to_owned(), source }
    }
}
