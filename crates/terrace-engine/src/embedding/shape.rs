//! Requirements of a context for embeddings.

use crate::unfit::Unfit;
use terrace_ggml::llama::Pooling;
use terrace_model::{MetaValue, ModelFile};

/// Most tokens of a text, unless the context for prompts is smaller, or the model sees texts from both
/// sides.
const MOST_TOKENS: u32 = 8192;
/// Most tokens per graph.
const MOST_UBATCH: u32 = 512;
/// Most bytes of the logits of a graph's tokens, which llama.cpp computes and keeps beside embeddings.
const MOST_LOGITS: u64 = 256 << 20;
/// Bytes of the logits of one token per entry of the vocabulary: those of the graph, and those that
/// are kept.
const LOGIT_BYTES: u64 = 2 * 4;
/// Granularity of graphs.
const STEP: u32 = 32;

/// The tensors of a classification head, either of which makes scores.
const CLASSIFIERS: [&str; 2] = ["cls.weight", "cls.output.weight"];

/// Shape of a context for embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub pooling: Pooling,
    /// Most tokens of a text.
    pub tokens: u32,
    /// Most tokens of a graph.
    pub ubatch: u32,
    /// True if the model only embeds: each token sees all others, so that a text is one graph.
    pub encoder: bool,
    /// True if nothing says which pooling it is.
    guessed: bool,
}

impl Shape {
    /// The shape for a model whose context for prompts has `context` tokens. Without `pooling`, the metadata
    /// say how the embeddings of tokens become one.
    ///
    /// # Errors
    /// Scores are asked for, and the model has no classification head.
    pub fn of(file: &ModelFile, pooling: Option<Pooling>, context: u32) -> Result<Self, Unfit> {
        let key = format!("{}.attention.causal", file.architecture());
        let one_way = file.metadata.get(&key) != Some(&MetaValue::Bool(false));
        // llama.cpp's graph of this one ends in embeddings, but its context is that of a decoder.
        let encoder = !one_way || file.architecture() == "llama-embed";
        let said = pooling.or(file.arch_u64("pooling_type").and_then(Pooling::from_number));
        let pooling = said.unwrap_or(Pooling::Last);
        if pooling == Pooling::Rank && CLASSIFIERS.iter().all(|name| file.tensor(name).is_none()) {
            return Err(Unfit::NoClassifier);
        }
        let tokens = context.min(MOST_TOKENS);
        let shape = Self { pooling, tokens, ubatch: ubatch(file, tokens), encoder, guessed: said.is_none() };
        Ok(if encoder { shape.of_encoder(file, context) } else { shape })
    }

    /// The shape for a model that turns out to see texts from both sides.
    pub fn of_encoder(self, file: &ModelFile, context: u32) -> Self {
        let trained = file.arch_u64("context_length").and_then(|tokens| u32::try_from(tokens).ok());
        let tokens = context.min(trained.filter(|&tokens| tokens > 0).unwrap_or(context));
        let pooling = if self.guessed { Pooling::Mean } else { self.pooling };
        Self { pooling, tokens, ubatch: tokens, encoder: true, ..self }
    }
}

/// Most tokens per graph, such that their logits have room.
fn ubatch(file: &ModelFile, tokens: u32) -> u32 {
    let vocabulary = file.tensor("token_embd.weight").map_or(0, |tensor| tensor.shape.0[1]);
    let fits = MOST_LOGITS / vocabulary.max(1).saturating_mul(LOGIT_BYTES).max(1);
    let fits = u32::try_from(fits).unwrap_or(u32::MAX) / STEP * STEP;
    fits.clamp(STEP, MOST_UBATCH).min(tokens.max(1))
}
