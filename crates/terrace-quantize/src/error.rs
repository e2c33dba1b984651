//! Why a model was not quantised.

use std::io;
use std::path::PathBuf;
use terrace_ggml::gguf::GgufError;
use terrace_ggml::gguf::write::HeaderError;
use terrace_ggml::llama::MixtureError;
use terrace_ggml::quantize::imatrix::ImatrixError;
use terrace_model::ByteSize;

/// Displays as one line. All but those of reading and writing come before any work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuantizeError {
    /// The model's header.
    #[error(transparent)]
    Gguf(#[from] Box<GgufError>),
    /// The importance matrix.
    #[error(transparent)]
    Imatrix(#[from] Box<ImatrixError>),
    /// llama.cpp does not quantise this model so.
    #[error("{}: {source}", path.display())]
    Mixture {
        /// The model.
        path: PathBuf,
        /// Its reason.
        source: MixtureError,
    },
    /// llama.cpp sees other tensors than the header's reader.
    #[error("{}: llama.cpp and the header disagree about tensor `{tensor}`", path.display())]
    Disagree {
        /// The model.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A rule for no tensor.
    #[error("`{rule}` matches no tensor of this model")]
    UnusedRule {
        /// The rule.
        rule: String,
    },
    /// A tensor that was asked for alone and is not there.
    #[error("no tensor `{0}` in this model")]
    NoTensor(String),
    /// Weights that were quantised once already.
    #[error("`{tensor}` is already {from}: quantising it again to {to} loses more than either alone")]
    Requantize {
        /// The tensor.
        tensor: String,
        /// Its type.
        from: String,
        /// The type it was to get.
        to: &'static str,
    },
    /// A tensor that is not made of weights.
    #[error("`{tensor}` is {from}, which cannot be converted to {to}")]
    Unconvertible {
        /// The tensor.
        tensor: String,
        /// Its type.
        from: String,
        /// The type it was to get.
        to: &'static str,
    },
    /// A type of few bits, made blindly.
    #[error("`{tensor}` needs an importance matrix to become {to}{}", if *given { ", and the given one has no entry for it" } else { "" })]
    NeedsImportance {
        /// The tensor.
        tensor: String,
        /// The type it was to get.
        to: &'static str,
        /// Whether there is a matrix that lacks it.
        given: bool,
    },
    /// Importance of something else.
    #[error("`{tensor}` takes {expected} importance values, but the file has {found}")]
    ImportanceSize {
        /// The tensor.
        tensor: String,
        /// Columns times matrices.
        expected: u64,
        /// Values in the file.
        found: usize,
    },
    /// Something that a GGUF header cannot say.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The result would replace what it is made of.
    #[error("{}: is a file of the input", .0.display())]
    OntoInput(PathBuf),
    /// More shards than the format counts.
    #[error("{0} shards are more than a split model can have ({max})", max = u16::MAX)]
    TooManyShards(usize),
    /// Too little room.
    #[error("{}: needs {needed}, but only {available} is free there", path.display())]
    NoRoom {
        /// The result.
        path: PathBuf,
        /// Its size.
        needed: ByteSize,
        /// What the file system has.
        available: ByteSize,
    },
    /// Weights that are no numbers, or damaged.
    #[error("{}: tensor `{tensor}`, near offset {offset}: {reason}", path.display())]
    Weights {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Offset of the rows that were read together, in bytes.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// Reading failed.
    #[error("{}: tensor `{tensor}` cannot be read at offset {offset}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// In bytes.
        offset: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// Writing failed.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The caller ended it.
    #[error("interrupted")]
    Cancelled,
}
