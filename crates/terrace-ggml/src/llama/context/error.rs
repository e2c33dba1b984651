//! What goes wrong with a context.

use crate::backend::parked::ParkedError;

/// What went wrong with a context.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// It could not be made.
    #[error("cannot make a context of {tokens} tokens: {reason}")]
    Create {
        /// Tokens asked for.
        tokens: u32,
        /// llama.cpp's reason.
        reason: String,
    },
    /// More logits are wanted than the context has set memory aside for.
    #[error("logits of {asked} tokens requested at once, but the context was made for {most}")]
    Outputs {
        /// Tokens of the call that ask for logits.
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
    /// llama.cpp returned an error without a cause of ours.
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
