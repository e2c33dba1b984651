//! What a load refuses, with the numbers.

use std::fmt;
use std::path::PathBuf;
use terrace_model::ByteSize;
use terrace_plan::PlanError;

/// What was asked for and this model, or this machine, cannot have. Displays as one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// The model does not fit what was asked for.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Reading asked for, and left to the kernel.
    #[error("mapped weights are read through the page cache, so {choice} has no effect")]
    MappedAndRead {
        /// What says how to read.
        choice: ReadingChoice,
    },
    /// A device that is not there.
    #[error("no device `{name}`{}", if known.is_empty() { String::new() } else { format!("; available: {}", known.join(", ")) })]
    NoDevice {
        /// What was asked for.
        name: String,
        /// Those that could have been meant.
        known: Vec<String>,
    },
    /// Split tensors of which a device would have nothing.
    #[error(
        "cannot slice {tensor} for {devices} devices: with borders at multiples of {granularity}, one device gets nothing"
    )]
    EmptySlice {
        /// The tensor.
        tensor: String,
        /// How many devices there are.
        devices: u64,
        /// What borders are multiples of.
        granularity: u64,
    },
    /// A context that memory cannot hold.
    #[error("a context of {tokens} tokens needs about {needed}, but only {available} is available")]
    ContextTooLarge {
        /// Tokens asked for.
        tokens: u32,
        /// Its estimated size.
        needed: ByteSize,
        /// RAM that can be taken.
        available: ByteSize,
    },
    /// Weights that memory cannot hold twice.
    #[error(
        "repacking needs {needed} during the load (the weights twice, and the context), but only {available} is available"
    )]
    RepackTooLarge {
        /// Twice the weights, and the context.
        needed: ByteSize,
        /// RAM that can be taken.
        available: ByteSize,
    },
    /// An encoder, or a file without a vocabulary.
    #[error("{} is not a text generation model", .0.display())]
    NotGenerative(PathBuf),
    /// Layers cannot be skipped by llama.cpp itself.
    #[error("stock llama.cpp cannot skip layers")]
    StockLayers,
    /// The fault plan cannot be read.
    #[error("invalid fault plan: {0}")]
    Faults(String),
}

/// A choice of how weights are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadingChoice {
    /// That nothing is mapped.
    Unmapped,
    /// The I/O engine.
    Engine,
    /// Past the page cache or through it.
    Direct,
    /// Faults to inject.
    Faults,
    /// That files may be written to while the model is loaded.
    Reloads,
}

impl fmt::Display for ReadingChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unmapped => "reading them into memory",
            Self::Engine => "choosing an I/O engine",
            Self::Direct => "choosing direct or buffered reads",
            Self::Faults => "injecting read faults",
            Self::Reloads => "reloading changed files",
        })
    }
}
