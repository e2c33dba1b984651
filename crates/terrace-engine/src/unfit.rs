//! Reasons why a load is refused, with the numbers.

use std::fmt;
use std::path::PathBuf;
use terrace_model::ByteSize;
use terrace_plan::PlanError;

/// A request that this model or this machine cannot satisfy. Displays as one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// There is no plan that fits.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// An option about reading, although mapped weights are read by the kernel.
    #[error("mapped weights are read through the page cache, so {choice} has no effect")]
    MappedAndRead {
        /// The option.
        choice: ReadingChoice,
    },
    /// No device has this name.
    #[error("no device `{name}`{}", if known.is_empty() { String::new() } else { format!("; available: {}", known.join(", ")) })]
    NoDevice {
        /// The requested name.
        name: String,
        /// Names of the accelerators that exist.
        known: Vec<String>,
    },
    /// A device would get nothing of a split tensor.
    #[error(
        "cannot slice {tensor} for {devices} devices: with borders at multiples of {granularity}, one device gets nothing"
    )]
    EmptySlice {
        tensor: String,
        /// Number of devices.
        devices: u64,
        /// Granularity of the borders, in elements.
        granularity: u64,
    },
    /// Memory cannot hold the context.
    #[error("a context of {tokens} tokens needs about {needed}, but only {available} is available")]
    ContextTooLarge {
        /// Requested tokens.
        tokens: u32,
        /// Its estimated size.
        needed: ByteSize,
        /// RAM that can be taken.
        available: ByteSize,
    },
    /// Memory cannot hold the weights twice.
    #[error(
        "repacking needs {needed} during the load (the weights twice, and the context), but only {available} is available"
    )]
    RepackTooLarge {
        /// Twice the size of the weights, plus the context.
        needed: ByteSize,
        /// RAM that can be taken.
        available: ByteSize,
    },
    /// Memory cannot hold the context for embeddings.
    #[error(
        "a context of {tokens} tokens for embeddings needs about {needed}, but only {available} can be spared"
    )]
    EmbeddingsTooLarge {
        /// Tokens of the longest text.
        tokens: u32,
        /// Its estimated size.
        needed: ByteSize,
        /// Bytes that slots can make room for, or RAM that can be taken.
        available: ByteSize,
    },
    /// The budget cannot hold the adapters.
    #[error("the adapters take {needed}, but the RAM budget is {budget}")]
    AdaptersTooLarge {
        needed: ByteSize,
        /// RAM for weights.
        budget: ByteSize,
    },
    /// The budget cannot hold the projector.
    #[error("the projector takes {needed}, but the RAM budget beside adapters is {budget}")]
    ProjectorTooLarge {
        needed: ByteSize,
        /// RAM for weights.
        budget: ByteSize,
    },
    /// Scores are wanted of a model without a head that makes them.
    #[error("the model has no classification head, so it does not rank")]
    NoClassifier,
    /// Embeddings are wanted of an engine that was loaded without.
    #[error("the model was not loaded for embeddings")]
    NoEmbeddings,
    /// The file has an encoder or embeds, or it has no vocabulary.
    #[error("{} is not a text generation model", .0.display())]
    NotGenerative(PathBuf),
    /// The model refines whole texts in steps.
    #[error(
        "{} is a diffusion model ({architecture}), which does not generate one token after another",
        path.display()
    )]
    Diffusion {
        path: PathBuf,
        /// `general.architecture`.
        architecture: String,
    },
    /// Each expert is a tensor of its own.
    #[error(
        "{}: each expert is a tensor of its own (`{tensor}`), a format that llama.cpp no longer reads",
        path.display()
    )]
    LoneExperts {
        path: PathBuf,
        /// The first of these tensors.
        tensor: String,
    },
    /// Drafts cannot be checked, or not be had.
    #[error(transparent)]
    Drafts(#[from] NoDrafts),
    /// Nothing can be lost as asked.
    #[error(transparent)]
    Lossy(#[from] NoLoss),
    /// Layers are to be skipped as a calibration found, and none of the model is kept.
    #[error("there is no calibration of this model that says which layers can be skipped")]
    NoCalibration,
    /// Plain llama.cpp cannot skip layers.
    #[error("stock llama.cpp cannot skip layers")]
    StockLayers,
    /// Plain llama.cpp reads the file itself.
    #[error("stock llama.cpp reads its files itself, so they cannot be verified")]
    StockVerify,
    /// Plain llama.cpp reads the file itself.
    #[error("stock llama.cpp reads its files itself, so it does not read replicas of them")]
    StockReplicas,
    /// The fault plan is invalid.
    #[error("invalid fault plan: {0}")]
    Faults(String),
}

/// Why there are no drafts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoDrafts {
    /// Stock llama.cpp computes.
    #[error("stock llama.cpp rounds differently where it checks drafts")]
    Stock,
    /// The model keeps states.
    #[error("the model keeps states, which cannot be rolled back to the last right draft")]
    States,
    /// Devices compute a part.
    #[error("devices round differently where they check drafts")]
    Devices,
    /// Experts are chosen by what is in memory.
    #[error("experts are chosen by what is in memory, so drafts cannot be checked")]
    Lossy,
    /// Graphs of several tokens compute something else.
    #[error("llama.cpp computes several tokens of this model differently from single ones")]
    OtherGraph,
    /// So many tokens cannot be checked at once.
    #[error("passes of {tokens} tokens of this model cannot be taken apart")]
    Width {
        /// Tokens of a pass.
        tokens: usize,
    },
    /// The plan says so.
    #[error("by the plan's estimate, drafts make nothing faster here, however many are accepted")]
    Planned,
    /// The model has no MTP layers.
    #[error(
        "the model has no MTP layers (layers that predict the tokens after the next one), or none that draft"
    )]
    NoMtp,
    /// Memory does not hold the cache of the MTP layers.
    #[error("the MTP layers' cache needs {needed}, but only {available} can be spared")]
    MtpMemory {
        /// Their context.
        needed: ByteSize,
        /// Bytes that slots can make room for, and RAM that can be taken.
        available: ByteSize,
    },
    /// The draft model keeps states.
    #[error("{}: keeps states, so it cannot draft again from an earlier token", .0.display())]
    DraftStates(PathBuf),
    /// The draft model has another number of tokens.
    #[error("{}: has {has} tokens in its vocabulary, and the model {wanted}", path.display())]
    VocabularySize {
        /// The draft model.
        path: PathBuf,
        /// Its tokens.
        has: usize,
        /// The model's.
        wanted: usize,
    },
    /// A token of the draft model has another text.
    #[error("{}: token {token} differs from the model's", path.display())]
    Vocabulary {
        /// The draft model.
        path: PathBuf,
        /// The first such token.
        token: usize,
    },
    /// Memory does not hold the draft model.
    #[error("{}: needs {needed}, but only {available} can be spared", path.display())]
    Memory {
        /// The draft model.
        path: PathBuf,
        /// Its weights and its context.
        needed: ByteSize,
        /// Bytes that slots can make room for, and RAM that can be taken.
        available: ByteSize,
    },
}

/// Why nothing can be lost as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoLoss {
    /// Stock llama.cpp computes.
    #[error("stock llama.cpp computes exactly")]
    Stock,
    /// The model has no experts.
    #[error("the model has no experts to choose among")]
    NoExperts,
    /// The model uses fewer.
    #[error("the model uses {has} experts per token, not {experts} or more")]
    Experts {
        /// The number asked for.
        experts: u32,
        /// The model's.
        has: u32,
    },
    /// The first or the last layer, or none of the model's.
    #[error("layer {layer} of {layers} cannot be skipped")]
    Layer {
        layer: u32,
        /// Number of layers.
        layers: u32,
    },
    /// Two lists of layers.
    #[error("layers to skip are listed twice")]
    SkippedTwice,
    /// The number of experts is fixed by the load.
    #[error("the number of experts per token cannot change while the model is loaded")]
    Loaded,
    /// The file of experts in fewer bits is fixed by the load.
    #[error("the file of experts in fewer bits cannot change while the model is loaded")]
    LowLoaded,
    /// A file is not one of the model's experts in fewer bits.
    #[error("{} does not have the model's experts in fewer bits: {reason}", path.display())]
    Unlike {
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// A trace is recorded.
    #[error("a trace would count tokens twice that are computed again to measure the divergence")]
    BudgetTraced,
    /// A trace is recorded.
    #[error("a trace does not record which experts are read in fewer bits")]
    LowTraced,
    /// Reads are compared with checksums.
    #[error("experts in fewer bits are not verified")]
    LowVerified,
}

/// An option that controls how weights are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadingChoice {
    /// Nothing is to be mapped.
    Unmapped,
    /// The I/O engine.
    Engine,
    /// Direct or buffered reads.
    Direct,
    /// Injected faults.
    Faults,
    /// Files may be written to while the model is loaded.
    Reloads,
    /// Reads are compared with checksums.
    Verify,
    /// Copies on other disks are read, too.
    Replicas,
}

impl fmt::Display for ReadingChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unmapped => "reading them into memory",
            Self::Engine => "choosing an I/O engine",
            Self::Direct => "choosing direct or buffered reads",
            Self::Faults => "injecting read faults",
            Self::Reloads => "reloading changed files",
            Self::Verify => "verifying what is read",
            Self::Replicas => "reading replicas, too,",
        })
    }
}
