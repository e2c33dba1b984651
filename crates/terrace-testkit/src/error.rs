//! Errors of making files.

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
        /// The fault, with the numbers.
        reason: String,
    },
    /// The header cannot be written.
    #[error("header of {path}: {source}")]
    Header {
        path: PathBuf,
        /// The cause.
        source: HeaderError,
    },
    /// Weights could not be quantised.
    #[error("tensor `{tensor}`: {source}")]
    Quantize {
        tensor: String,
        /// The cause.
        source: QuantizeError,
    },
    /// A file operation failed.
    #[error("{path}: {source}")]
    Io {
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file that a broken one should be made from does not have what is needed.
    #[error("{path}: {reason}, at byte {offset}")]
    NotGguf {
        path: PathBuf,
        /// The expected thing.
        reason: &'static str,
        /// Its offset, in bytes.
        offset: u64,
    },
}

impl Error {
    /// Makes a function for `map_err` on file operations.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    /// Makes a function for `map_err` on header operations.
    pub(crate) fn header(path: &Path) -> impl FnOnce(HeaderError) -> Self {
        move |source| Self::Header { path: path.to_owned(), source }
    }

    /// Makes a function for `map_err` on what was expected in a GGUF file, and at which offset.
    pub(crate) fn not_gguf(path: &Path) -> impl FnOnce((&'static str, usize)) -> Self {
        move |(reason, at)| Self::NotGguf { path: path.to_owned(), reason, offset: at as u64 }
    }
}
