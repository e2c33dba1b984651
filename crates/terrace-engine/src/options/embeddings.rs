//! Embeddings of texts.

use terrace_ggml::llama::Pooling;

/// When the context for embeddings is made. It lies beside the one that generates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Embeds {
    /// Never; models that only embed are refused.
    Never,
    /// When a text is to be embedded first, if memory allows. Slots for weights make room.
    OnRequest,
    /// At load: it is a part of the plan.
    AtLoad,
}

/// Embeddings of texts.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
#[command(next_help_heading = "Server")]
pub struct EmbeddingOptions {
    /// Make the context for embeddings at load, as a part of the plan, instead of on the first
    /// embedding request
    #[arg(long, env = "TERRACE_EMBEDDINGS")]
    pub embeddings: bool,
    /// Combine the embeddings of a text's tokens: none (each token's own), mean, cls (the first one's), last,
    /// or rank (scores, for /rerank) [default: as the model says; if it says nothing, last]
    #[arg(long, value_name = "TYPE", env = "TERRACE_POOLING")]
    pub pooling: Option<Pooling>,
    /// Rank documents: --embeddings with --pooling rank
    #[arg(long, env = "TERRACE_RERANKING", conflicts_with = "pooling")]
    pub reranking: bool,
}

impl EmbeddingOptions {
    /// Returns when the context is made.
    pub fn made(&self) -> Embeds {
        if self.embeddings || self.reranking { Embeds::AtLoad } else { Embeds::OnRequest }
    }

    /// Returns how the embeddings of tokens become one; `None` means as the model's metadata say. If
    /// they say nothing, it is the last token's, and the mean for models that see a text from both sides.
    pub fn pooling(&self) -> Option<Pooling> {
        if self.reranking { Some(Pooling::Rank) } else { self.pooling }
    }
}
