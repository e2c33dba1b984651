//! Embeddings: one or several vectors for a text. They are computed in a context of their own beside
//! the one that generates; of models that do not generate, in the only one.

mod context;
mod embedder;
mod normalize;
mod run;
mod shape;

pub(crate) use embedder::Embedder;
pub use normalize::normalize;
pub use run::Embedding;
pub(crate) use shape::Shape;

use terrace_ggml::llama::{PairTokens, Pooling};

/// Facts about a model's embeddings.
#[derive(Clone, Debug)]
pub struct EmbeddingFacts {
    /// Combination of tokens' embeddings into one.
    pub pooling: Pooling,
    /// Number of values of an embedding.
    pub width: usize,
    /// Most tokens of a text.
    pub most: usize,
    /// True if the model only embeds, and does not generate.
    pub encoder: bool,
    /// The text that asks how well a document answers a query; `None`: they are joined by tokens.
    pub rank_template: Option<String>,
    /// These tokens.
    pub pair: PairTokens,
}
