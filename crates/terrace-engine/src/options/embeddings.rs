//! Embeddings of texts.

use terrace_ggml::llama::Pooling;

/// When the context for embeddings is made. It lies beside the one that generates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Embeds {
    /// Never; models that only embed are refused.
    #[default]
    Never,
    /// When a text is to be embedded first, if memory allows. Slots for weights make room.
    OnRequest,
    /// At load: it is a part of the plan.
    AtLoad,
}

/// Embeddings of texts.
#[derive(Clone, Copy, Debug, Default)]
pub struct EmbeddingOptions {
    /// When their context is made.
    pub made: Embeds,
    /// How the embeddings of tokens become one; `None` means as the model's metadata say. If they say
    /// nothing, it is the last token's, and the mean for models that see a text from both sides.
    pub pooling: Option<Pooling>,
}
