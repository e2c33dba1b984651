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
    #[error("mapped weights are read by the page cache, so {choice} would do nothing")]
    MappedAndRead {
        /// What says how to read.
        choice: ReadingChoice,
    },
    /// A device that is not there.
    #[error("there is no device `{name}`{}", if known.is_empty() { String::new() } else { format!("; there are {}", known.join(", ")) })]
    NoDevice {
        /// What was asked for.
        name: String,
        /// Those that could have been meant.
        known: Vec<String>,
    },
    /// Split tensors of which a device would have nothing.
    #[error(
        "matrices shared by devices: cut in multiples of {granularity}, one of {devices} devices would have nothing of {tensor}"
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
    #[error("a context of {tokens} tokens needs about {needed}, and {available} are available")]
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
        "repacking holds the weights twice while it loads: that and the context are {needed}, and {available} are available"
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
    #[error("stock llama.cpp computes all layers")]
    StockLayers,
    /// The fault plan cannot be read.
    #[error("bad fault plan: {0}")]
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
            Self::Unmapped => "reading into memory",
            Self::Engine => "a choice of the I/O engine",
            Self::Direct => "a choice of direct I/O",
            Self::Faults => "injecting faults",
            Self::Reloads => "reloading what is streamed",
        })
    }
}
