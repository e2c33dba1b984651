//! Facts about a served model that do not change.

use std::path::PathBuf;
use terrace_engine::{AdapterFacts, EmbeddingFacts, Engine, PlanReport, SpecialTokens, TokenLengths};
use terrace_ggml::llama::{FimTokens, Token, Vocab};
use terrace_model::identity::ModelIdentity;

/// Facts about a served model that do not change, apart from replaced tensors.
#[derive(Clone, Debug)]
pub struct ModelFacts {
    /// The file that was loaded; of a split model, its first shard.
    pub file: PathBuf,
    /// The identity of the model.
    pub identity: ModelIdentity,
    /// Number of jobs that are answered at the same time.
    pub slots: usize,
    /// Capacity of each slot in tokens.
    pub context: usize,
    /// Context length that the model was trained with.
    pub trained_context: u32,
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// The lengths of its tokens.
    pub token_lengths: TokenLengths,
    /// The model's chat template (Jinja source), if it has one.
    pub chat_template: Option<String>,
    /// Texts of the tokens that chat templates refer to.
    pub special_tokens: SpecialTokens,
    /// The tokens for gaps in texts.
    pub fim: FimTokens,
    /// The token that begins a document, if the model wants one.
    pub leading: Option<i32>,
    /// The tokens that end texts.
    pub ends: Vec<i32>,
    /// The adapters, by their numbers.
    pub adapters: Vec<AdapterFacts>,
    /// Pooling of embeddings; `None` if the model does not embed.
    pub embedding: Option<EmbeddingFacts>,
    /// The effective plan.
    pub plan: PlanReport,
    /// Duration of the load in milliseconds.
    pub load_ms: f64,
}

impl ModelFacts {
    pub(super) fn of(engine: &Engine, slots: usize) -> Self {
        Self {
            file: engine.file().to_owned(),
            identity: engine.identity().clone(),
            slots,
            context: engine.context_size(),
            trained_context: engine.model().trained_context(),
            vocabulary: engine.vocab().len(),
            token_lengths: TokenLengths::of(engine.vocab()),
            chat_template: engine.chat_template(),
            special_tokens: engine.special_tokens(),
            fim: engine.vocab().fim(),
            leading: engine.vocab().leading().map(|token| token.0),
            ends: ends(engine.vocab()),
            adapters: engine.adapters().to_vec(),
            embedding: engine.embedding_facts(),
            plan: engine.plan().clone(),
            load_ms: engine.load_ms(),
        }
    }

    /// Returns whether the model generates text.
    pub fn generates(&self) -> bool {
        self.embedding.as_ref().is_none_or(|embedding| !embedding.encoder)
    }

    /// Returns whether the model reads images.
    pub const fn sees(&self) -> bool {
        self.plan.projector.is_some()
    }

    /// Returns whether this number is a token of the vocabulary.
    pub fn has_token(&self, token: i32) -> bool {
        usize::try_from(token).is_ok_and(|token| token < self.vocabulary)
    }
}

/// The tokens that end texts.
fn ends(vocab: Vocab<'_>) -> Vec<i32> {
    let all = i32::try_from(vocab.len()).unwrap_or(i32::MAX);
    (0..all).filter(|&token| vocab.is_end(Token(token))).collect()
}
