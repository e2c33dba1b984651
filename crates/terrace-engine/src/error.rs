//! What can go wrong between a path and a token, each with what to do about it.

use crate::reload::ReloadError;
use std::path::PathBuf;
use terrace_backend::BackendError;
use terrace_ggml::devices::rpc::RpcError;
use terrace_ggml::gguf::GgufError;
use terrace_ggml::llama::{ContextError, LoadError, TokenizeError};
use terrace_host::pressure::ReadingsError;
use terrace_model::ByteSize;
use terrace_plan::{PlaceError, PlanError, RuleError};
use terrace_store::StoreError;

/// Why a model did not load or generate. Displays as one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The file is not a model that can be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The model does not fit what was asked for.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Layers cannot be put on devices as asked.
    #[error("layers on devices: {0}")]
    Place(PlaceError),
    /// Layers for devices, and none are there.
    #[error("--n-gpu-layers: there is no accelerator with memory of its own")]
    NoAccelerator,
    /// The store could not be opened or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// llama.cpp refused the model.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The context failed.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The text cannot be tokenised.
    #[error(transparent)]
    Tokenize(#[from] TokenizeError),
    /// The device does not fit this ggml.
    #[error(transparent)]
    Device(#[from] terrace_ggml::backend::device::ApiVersionMismatch),
    /// The fault plan cannot be read.
    #[error("bad fault plan: {0}")]
    Faults(String),
    /// The simulated readings of memory cannot be read.
    #[error(transparent)]
    Readings(#[from] ReadingsError),
    /// Reading asked for, and left to the kernel.
    #[error("--manage mapped leaves reading to the page cache, so {option} would do nothing")]
    MappedAndRead {
        /// The option that says how to read.
        option: &'static str,
    },
    /// A plan in a file that cannot be followed.
    #[error("plan {}: {reason}", path.display())]
    PlanFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
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
        "--split-mode tensor: cut in multiples of {granularity}, one of {devices} devices would have nothing of {tensor}"
    )]
    EmptySlice {
        /// The tensor.
        tensor: String,
        /// How many devices there are.
        devices: u64,
        /// What borders are multiples of.
        granularity: u64,
    },
    /// A server that lends devices.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// A rule for tensors that cannot be followed.
    #[error("-ot {0}")]
    Rule(#[from] RuleError),
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
    /// More prompt than context.
    #[error("the prompt has {prompt} tokens, {used} are in the context already, and it holds {context}")]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens before it.
        used: usize,
        /// Size of the context.
        context: usize,
    },
    /// Nothing to evaluate.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// An encoder, or a file without a vocabulary.
    #[error("{} is not a text generation model", .0.display())]
    NotGenerative(PathBuf),
    /// The trace cannot be written.
    #[error("cannot write the routing trace {}: {source}", path.display())]
    Trace {
        /// Its file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The timeline cannot be written.
    #[error("cannot write the profile {}: {source}", path.display())]
    Profile {
        /// Its file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file of layers to skip that cannot be used, or not be written.
    #[error("layer skip file {}: {reason}", path.display())]
    LayerSkip {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Layers cannot be skipped by llama.cpp itself.
    #[error("stock llama.cpp computes all layers")]
    StockLayers,
    /// Weights that were streamed from a file are not there any more.
    #[error("{} was written to in place while weights are streamed from it, and cannot be used as it is now", path.display())]
    Overwritten {
        /// The file.
        path: PathBuf,
    },
    /// Tensors could not be replaced.
    #[error(transparent)]
    Reload(#[from] ReloadError),
    /// The caller ended the load or the measurement.
    #[error("interrupted")]
    Cancelled,
}

impl EngineError {
    /// Of a context that evaluated something which may be interrupted.
    pub(crate) fn of_evaluation(error: ContextError) -> Self {
        match error {
            ContextError::Interrupted => Self::Cancelled,
            other => other.into(),
        }
    }

    /// What the user can do, if that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Plan(PlanError::BudgetTooSmall { minimum, .. }) => {
                Some(format!("use --ram-budget {} or more, or a smaller quantisation", round_up(*minimum)))
            }
            Self::Place(_) => Some("use a smaller --n-gpu-layers, or leave it out: as many as pay are chosen".into()),
            Self::EmptySlice { .. } => Some("use --split-mode layer, or fewer devices".into()),
            Self::NoAccelerator => Some(
                "`terrace doctor` shows the devices; --rpc HOST:PORT uses those of a server, --n-gpu-layers 0 none".into(),
            ),
            Self::MappedAndRead { option } => Some(format!("use --manage auto, or leave {option} out")),
            Self::PlanFile { .. } => Some(
                "make one with `terrace plan MODEL --json > FILE`; of an edited one, what it streams, its expert cache and \
                 its context count"
                    .into(),
            ),
            Self::Rule(RuleError::Unused { .. }) => {
                Some("`terrace plan MODEL --json` and `terrace inspect MODEL` show a model's tensors".into())
            }
            Self::RepackTooLarge { .. } => Some("leave out --repack".into()),
            Self::ContextTooLarge { .. } => Some("use a smaller --ctx".into()),
            Self::PromptTooLong { prompt, used, .. } => {
                Some(format!("use --ctx {} or more, or shorten the prompt", prompt + used + 1))
            }
            Self::LayerSkip { .. } => {
                Some("make one with `terrace calibrate-skip MODEL -f TEXT -o FILE`".into())
            }
            Self::StockLayers => Some("leave out --layer-skip, or --stock".into()),
            Self::Overwritten { .. } => {
                Some("put a model's file there that fits; to replace files, write elsewhere and rename".into())
            }
            Self::Reload(error) => error.hint(),
            Self::EmptyPrompt => Some("give a prompt with -p TEXT or -f FILE".into()),
            Self::Context(ContextError::Create { .. }) => {
                Some("a smaller --ctx or --ubatch needs less memory".into())
            }
            Self::Backend(BackendError::WholeExperts { .. }) => Some("run with --manage none".into()),
            _ => None,
        }
    }
}

/// The size in MiB, rounded up, as it is typed.
fn round_up(size: ByteSize) -> String {
    format!("{}MiB", size.bytes().div_ceil(1 << 20))
}
