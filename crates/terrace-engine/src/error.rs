//! Everything that can go wrong between a path and a token.

use crate::file_error::{FileError, FileRole};
use crate::reload::error::ReloadError;
use crate::unfit::Unfit;
use crate::vision::error::VisionError;
use std::path::PathBuf;
use terrace_backend::BackendError;
use terrace_ggml::devices::rpc::RpcError;
use terrace_ggml::gguf::GgufError;
use terrace_ggml::llama::{AdapterError, ContextError, LoadError, StateError, TokenizeError};
use terrace_ggml::vision::ProjectorError;
use terrace_ggml::{CxxError, Excess};
use terrace_host::pressure::ReadingsError;
use terrace_plan::PlanError;
use terrace_store::{ReplicaError, StoreError};

/// Why a model did not load or generate. Displays as one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The file is not a model that can be read.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A request that this model or this machine cannot satisfy.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// A file beside the model that cannot be used or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The store could not be opened or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file named as a replica is not one.
    #[error(transparent)]
    Replica(#[from] ReplicaError),
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// llama.cpp refused the model.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// llama.cpp refused an adapter.
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    /// llama.cpp refused a projector.
    #[error(transparent)]
    Projector(#[from] ProjectorError),
    /// A prompt's images cannot be read.
    #[error(transparent)]
    Vision(#[from] VisionError),
    /// The context failed.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// llama.cpp threw while a token was chosen or written.
    #[error(transparent)]
    Cxx(#[from] CxxError),
    /// The grammar of an answer takes too much to choose a token.
    #[error("the grammar is too ambiguous to choose a token: {0}")]
    Grammar(Excess),
    /// llama.cpp threw while a token was chosen that a grammar or a schema of the caller allows.
    #[error("the grammar cannot be followed: {0}")]
    Unfollowable(CxxError),
    /// The context's contents could not be copied or put back.
    #[error(transparent)]
    State(#[from] StateError),
    /// The text cannot be tokenised.
    #[error(transparent)]
    Tokenize(#[from] TokenizeError),
    /// The Terrace device was built for another ggml.
    #[error(transparent)]
    Device(#[from] terrace_ggml::backend::ApiVersionMismatch),
    /// An RPC server's devices cannot be used.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The prompt does not fit the context.
    #[error(
        "the prompt of {prompt} tokens does not fit: {used} of the context's {context} tokens are in use"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that are already in the context.
        used: usize,
        /// Size of the context.
        context: usize,
    },
    /// A text is so long that its tokens cannot fit the context; it was not tokenised, or not to its
    /// end.
    #[error("the prompt of {bytes} bytes has at least {least} tokens, but the context holds only {context}")]
    TextTooLong {
        /// Length of the text.
        bytes: usize,
        /// Tokens that it has at least.
        least: usize,
        /// Size of the context.
        context: usize,
    },
    /// There is nothing to evaluate.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// A file that weights stream from was overwritten, and its old contents are lost.
    #[error("{}: overwritten in place while weights stream from it, and its new contents do not fit", path.display())]
    Overwritten { path: PathBuf },
    /// A reload replaced tensors of a block, and found no memory to slice the others to match.
    #[error("the weights of {block} are not sliced alike since a reload ran out of memory")]
    Unsliced {
        /// Prefix of their names, `blk.3.`.
        block: String,
    },
    /// Tensors could not be replaced.
    #[error(transparent)]
    Reload(#[from] ReloadError),
    /// The caller ended the load or the measurement.
    #[error("interrupted")]
    Cancelled,
}

impl EngineError {
    /// Converts the error of a context that may be interrupted.
    pub(crate) fn of_evaluation(error: ContextError) -> Self {
        match error {
            ContextError::Interrupted => Self::Cancelled,
            other => other.into(),
        }
    }

    /// Advice for the user, as far as the engine has some. Names no option of a program.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Overwritten { .. } => Some(
                "put a matching model file in its place; to replace files, write a new one and rename it"
                    .into(),
            ),
            Self::Reload(error) => error.hint(),
            _ => None,
        }
    }
}

impl From<PlanError> for EngineError {
    fn from(error: PlanError) -> Self {
        Unfit::from(error).into()
    }
}

impl From<ReadingsError> for EngineError {
    fn from(ReadingsError { path, reason }: ReadingsError) -> Self {
        FileError { role: FileRole::Readings, path, reason }.into()
    }
}
