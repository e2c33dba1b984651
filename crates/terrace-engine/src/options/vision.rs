//! Images.

use std::path::PathBuf;

/// How images are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VisionOptions {
    /// The projector: a GGUF file with a vision encoder for this model. `None`: no images are read.
    pub projector: Option<PathBuf>,
    /// Bounds of the tokens of an image, for projectors that read images in their own resolution;
    /// `None`: the projector's.
    pub least_tokens: Option<u32>,
    /// See [`VisionOptions::least_tokens`].
    pub most_tokens: Option<u32>,
}
