//! Images in prompts.
//!
//! An [`Image`] is decoded by a library that keeps memory safe, within limits, before llama.cpp sees
//! its pixels. A prompt with images ([`Prompted`]) is a sequence of tokens as any other: a piece of
//! an image takes as many places as it has embeddings, with negative numbers that follow from its
//! contents ([`stand_ins`](key::stand_ins)), so that whatever compares tokens - kept conversations,
//! prefixes that are reused - compares images as well. [`Media`] says where the pieces are, and at
//! which positions what follows them is.

pub(crate) mod error;
mod evaluate;
mod file;
mod image;
mod images;
mod key;
mod media;
mod prompted;
mod seen;

pub use error::VisionError;
pub use file::ProjectorFacts;
pub(crate) use file::ProjectorFile;
pub use image::{Image, ImageReadError};
pub use images::Images;
pub use media::Media;
pub use prompted::Prompted;
pub use prompted::Reading;
pub(crate) use seen::Seen;

use crate::error::EngineError;
use crate::options::VisionOptions;
use std::sync::Arc;
use terrace_ggml::llama::Model;
use terrace_ggml::vision::{Projector, ProjectorParams};

/// A loaded projector.
pub struct Vision {
    projector: Projector,
    /// Number of tokens of a graph.
    ubatch: usize,
    /// Tells projectors apart.
    seed: [u8; 32],
}

impl Vision {
    /// Loads the projector of a model whose graphs have up to `ubatch` tokens.
    ///
    /// # Errors
    /// [`EngineError::Projector`].
    pub fn load(
        file: &ProjectorFile,
        model: &Arc<Model>,
        threads: usize,
        ubatch: u32,
    ) -> Result<Self, EngineError> {
        let params = ProjectorParams { threads, ..file.params };
        let projector = Projector::load(&file.facts.path, model, &params)?;
        Ok(Self { projector, ubatch: ubatch as usize, seed: file.seed })
    }
}

/// The parameters that do not depend on the run.
fn params(options: &VisionOptions) -> ProjectorParams {
    let &VisionOptions { mmproj: _, image_min_tokens, image_max_tokens } = options;
    ProjectorParams { threads: 1, least_tokens: image_min_tokens, most_tokens: image_max_tokens }
}
