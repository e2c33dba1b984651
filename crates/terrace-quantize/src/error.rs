//! Errors of quantising.

use std::io;
use std::path::PathBuf;
use terrace_ggml::gguf::GgufError;
use terrace_ggml::gguf::write::HeaderError;
use terrace_ggml::llama::MixtureError;
use terrace_ggml::quantize::imatrix::ImatrixError;
use terrace_model::{ByteSize, Slices};
use terrace_plan::mix::MixError;

/// Why a model was not quantised. Displays as one line. All errors except those of reading and
/// writing occur before any work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuantizeError {
    /// The model's header cannot be read.
    #[error(transparent)]
    Gguf(#[from] Box<GgufError>),
    /// The importance matrix cannot be read.
    #[error(transparent)]
    Imatrix(#[from] Box<ImatrixError>),
    /// llama.cpp refuses to quantise this model in this way.
    #[error("{}: {source}", path.display())]
    Mixture {
        path: PathBuf,
        /// Its reason.
        source: MixtureError,
    },
    /// llama.cpp lists other tensors than the header.
    #[error("{}: llama.cpp and the header disagree about tensor `{tensor}`", path.display())]
    Disagree { path: PathBuf, tensor: String },
    /// No types are small enough.
    #[error("the smallest types make a file of {smallest}, more than the {size} that it may have")]
    NoFit {
        smallest: ByteSize,
        /// The size that was asked for.
        size: ByteSize,
    },
    /// The choice of types failed.
    #[error(transparent)]
    Mix(MixError),
    /// A rule matches no tensor.
    #[error("`{rule}` matches no tensor of this model")]
    UnusedRule { rule: String },
    /// A tensor that was requested by name does not exist.
    #[error("no tensor `{0}` in this model")]
    NoTensor(String),
    /// The weights are already quantised.
    #[error("`{tensor}` is already {from}: {}", again(to, *to_float))]
    Requantize {
        tensor: String,
        /// Its type.
        from: String,
        /// The type it was to get.
        to: &'static str,
        /// True if that type is not quantised.
        to_float: bool,
    },
    /// A tensor does not hold weights.
    #[error("`{tensor}` is {from}, which cannot be converted to {to}")]
    Unconvertible {
        tensor: String,
        /// Its type.
        from: String,
        /// The type it was to get.
        to: &'static str,
    },
    /// A type of few bits needs importance values.
    #[error("`{tensor}` needs an importance matrix to become {to}{}", if *given { ", and the given one has no entry for it" } else { "" })]
    NeedsImportance {
        tensor: String,
        /// The type it was to get.
        to: &'static str,
        /// True if an importance matrix was given, without values for this tensor.
        given: bool,
    },
    /// The importance values do not match the tensor.
    #[error("`{tensor}` takes {expected} importance values, but the file has {found}")]
    ImportanceSize {
        tensor: String,
        /// Columns times matrices.
        expected: u64,
        /// Values in the file.
        found: usize,
    },
    /// Weights that are not zero would all become zero. The importance values are the usual cause,
    /// or weights too small for the type.
    #[error(
        "`{tensor}`{}: every weight becomes zero as {to}, and they are not zero as {from}",
        within(slices)
    )]
    Zeroed {
        tensor: String,
        /// Its slices of which that is true.
        slices: Slices,
        /// Its type.
        from: String,
        /// The type it was to get.
        to: &'static str,
    },
    /// Finite weights would become NaN or infinite.
    #[error(
        "`{tensor}`{}: weights become NaN or infinite as {to}, and they are finite as {from}",
        within(slices)
    )]
    NotFinite {
        tensor: String,
        /// A slice of it of which that is true.
        slices: Slices,
        /// Its type.
        from: &'static str,
        /// The type it was to get.
        to: &'static str,
    },
    /// A value cannot be stored in a GGUF header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The result would overwrite its input.
    #[error("{}: is a file of the input", .0.display())]
    OntoInput(PathBuf),
    /// There is a file already.
    #[error("{}: the file exists", .0.display())]
    Exists(PathBuf),
    /// There are more shards than the format can count.
    #[error("{0} shards are more than a split model can have ({max})", max = u16::MAX)]
    TooManyShards(usize),
    /// The file system has too little space.
    #[error("{}: needs {needed}, but only {available} is free there", path.display())]
    NoRoom {
        /// The result.
        path: PathBuf,
        needed: ByteSize,
        /// Free space of the file system.
        available: ByteSize,
    },
    /// Weights are damaged or not finite.
    #[error("{}: tensor `{tensor}`, near offset {offset}: {reason}", path.display())]
    Weights {
        path: PathBuf,
        tensor: String,
        /// Offset of the rows that were read together, in bytes.
        offset: u64,
        /// The fault.
        reason: String,
    },
    /// Reading failed.
    #[error("{}: tensor `{tensor}` cannot be read at offset {offset}: {source}", path.display())]
    Read {
        path: PathBuf,
        tensor: String,
        /// In bytes.
        offset: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// Writing failed.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The caller ended it.
    #[error("interrupted")]
    Cancelled,
}

/// Refusal of weights that are quantised already, or advice about them.
fn again(to: &str, to_float: bool) -> String {
    match to_float {
        true => format!("{to} takes more room and gives nothing back that was lost"),
        false => format!("quantising it again to {to} loses more than either alone"),
    }
}

/// Names the slices of a tensor, if they are not all.
fn within(slices: &Slices) -> String {
    if slices.is_all() { String::new() } else { format!(", {slices}") }
}

impl QuantizeError {
    /// Counts an error over the whole file, of which `fixed` bytes were no matter of choice.
    pub(crate) fn no_fit(error: &MixError, fixed: u64, size: ByteSize) -> Self {
        match error {
            MixError::NoneFits { smallest, .. } => Self::NoFit { smallest: ByteSize(smallest + fixed), size },
            other => Self::Mix(other.clone()),
        }
    }
}
