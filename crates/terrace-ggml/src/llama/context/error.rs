//! Errors of a context.

use crate::backend::parked::ParkedError;
use crate::cxx::CxxError;
use crate::llama::StateError;

/// Why a context could not be made, or a computation in it failed.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The context could not be made.
    #[error("cannot make a context of {tokens} tokens: {reason}")]
    Create {
        /// Tokens requested.
        tokens: u32,
        /// llama.cpp's reason.
        reason: String,
    },
    /// A device of type CPU that was loaded from a library stands before the one that is linked.
    #[error("ggml's first CPU device is not the one that this program was built with")]
    NotFirst,
    /// More logits were requested than the context has reserved memory for.
    #[error("logits of {asked} tokens requested at once, but the context was made for {most}")]
    Outputs {
        /// Tokens of the call whose logits were requested.
        asked: usize,
        /// [`ContextParams::outputs`](super::ContextParams::outputs).
        most: usize,
    },
    /// No room for more tokens.
    #[error("the context is full")]
    Full,
    /// The interrupt flag ended the computation.
    #[error("interrupted")]
    Interrupted,
    /// A backend failed.
    #[error(transparent)]
    Backend(ParkedError),
    /// llama.cpp threw.
    #[error(transparent)]
    Cxx(#[from] CxxError),
    /// A state could not be put back. The context is empty.
    #[error("a token cannot be computed again: {0}")]
    State(#[from] StateError),
    /// llama.cpp returned an error that no backend of Terrace caused.
    #[error("decoding {tokens} tokens failed with code {code}: {reason}")]
    Decode {
        /// Tokens in the call.
        tokens: usize,
        /// llama.cpp's code.
        code: i32,
        /// Its last error line.
        reason: String,
    },
}
