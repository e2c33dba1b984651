//! Why a prompt with images cannot be read.

use super::image::ImageReadError;
use terrace_ggml::vision::ImageError;

/// Why a prompt with images cannot be read. Displays as one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VisionError {
    /// There is no projector.
    #[error("the model was loaded without a projector, so it reads no images")]
    NoProjector,
    /// A file is not an image that can be read.
    #[error("image {number} cannot be read: {reason}")]
    Unread {
        /// Which one, from 1.
        number: usize,
        reason: ImageReadError,
    },
    /// A template writes nothing of an image.
    #[error("the chat template leaves image {number} out")]
    LeftOut {
        /// Which one, from 1.
        number: usize,
    },
    /// A template writes an image several times.
    #[error("the chat template repeats image {number}")]
    Repeated {
        /// Which one, from 1.
        number: usize,
    },
    /// Tokens that see each other have to be one graph.
    #[error(
        "an image takes {tokens} tokens, which this model reads all at once, but a graph has at most {most}"
    )]
    TooWide {
        /// Tokens of the image.
        tokens: usize,
        /// Tokens of a graph.
        most: usize,
    },
    /// llama.cpp makes nothing of it.
    #[error(transparent)]
    Image(#[from] ImageError),
}
