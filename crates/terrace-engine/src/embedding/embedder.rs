//! The context for embeddings.

use super::shape::Shape;
use crate::adapters::Scales;
use terrace_ggml::llama::{Context, ContextParams};
use terrace_model::ByteSize;

/// The context for embeddings, and how it is made.
pub struct Embedder {
    pub shape: Shape,
    pub params: ContextParams,
    /// Its size, unless the plan has counted it.
    pub uncounted: Option<ByteSize>,
    /// True if ggml's own threads compute.
    pub stock: bool,
    /// `None`: it is not made yet, or the engine's own one is for embeddings.
    pub context: Option<Context>,
    /// The adapters that this context computes with.
    pub scales: Scales,
}
