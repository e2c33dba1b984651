//! Embeddings of texts.

use clap::Args;
use terrace_engine::options::{EmbeddingOptions, Embeds};
use terrace_ggml::llama::Pooling;

/// Embeddings of texts.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Embeddings")]
pub struct EmbeddingArgs {
    /// Make the context for embeddings at load, as a part of the plan, instead of with the first
    /// request for some
    #[arg(long, env = "TERRACE_EMBEDDINGS")]
    pub embeddings: bool,
    /// How the embeddings of a text's tokens become one: none (each token's own), mean, cls (the
    /// first one's), last, or rank (scores, for /rerank) [default: as the model says; if it says
    /// nothing, last]
    #[arg(long, value_name = "TYPE", env = "TERRACE_POOLING")]
    pub pooling: Option<Pooling>,
    /// Rank documents: --embeddings with --pooling rank
    #[arg(long, env = "TERRACE_RERANKING", conflicts_with = "pooling")]
    pub reranking: bool,
}

impl EmbeddingArgs {
    /// Converts these to the engine's options.
    pub fn options(&self) -> EmbeddingOptions {
        let Self { embeddings, pooling, reranking } = *self;
        EmbeddingOptions {
            made: if embeddings || reranking { Embeds::AtLoad } else { Embeds::OnRequest },
            pooling: if reranking { Some(Pooling::Rank) } else { pooling },
        }
    }
}
