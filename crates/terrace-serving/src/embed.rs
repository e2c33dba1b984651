//! Jobs that embed texts.

use super::facts::ModelFacts;
use super::job::{Prompt, Refused};
use super::standing::Standing;
use std::sync::Arc;
use terrace_engine::{EngineError, Scales};
use terrace_ggml::llama::Pooling;

/// Maximum number of texts of a job.
const MOST_TEXTS: usize = 2048;
/// Maximum number of values that a job may leave.
const MOST_VALUES: usize = 1 << 24;

/// Texts to embed: each fits the context for embeddings, and has only tokens of the vocabulary.
#[derive(Clone, Debug)]
pub struct EmbedJob {
    pub(crate) texts: Vec<Prompt>,
    tokens: usize,
    pub(crate) scales: Scales,
}

impl EmbedJob {
    /// Checks texts against the model that `facts` describe.
    ///
    /// # Errors
    /// [`Refused::NotEmbedding`], [`Refused::EmptyPrompt`], [`Refused::TooLong`],
    /// [`Refused::UnknownToken`] or [`Refused::TooMuch`].
    pub fn new(texts: Vec<Vec<i32>>, facts: &ModelFacts) -> Result<Self, Refused> {
        let embedding = facts.embedding.as_ref().ok_or(Refused::NotEmbedding)?;
        if texts.is_empty() {
            return Err(Refused::EmptyPrompt);
        }
        Self::check_count(texts.len())?;
        let tokens = texts.iter().map(Vec::len).sum();
        let values = |count: usize| count.saturating_mul(embedding.width);
        if embedding.pooling == Pooling::None && values(tokens) > MOST_VALUES {
            return Err(Refused::TooMuch { what: "values", count: values(tokens), most: MOST_VALUES });
        }
        let texts =
            texts.into_iter().map(|text| Prompt::embeddable(text, facts)).collect::<Result<_, _>>()?;
        Ok(Self { texts, tokens, scales: Scales::default() })
    }

    /// Checks that a job may have as many texts, before they are tokenised.
    ///
    /// # Errors
    /// [`Refused::TooMuch`].
    pub const fn check_count(count: usize) -> Result<(), Refused> {
        match count {
            count if count > MOST_TEXTS => Err(Refused::TooMuch { what: "texts", count, most: MOST_TEXTS }),
            _ => Ok(()),
        }
    }

    /// The same, computed with these adapters.
    pub fn with(self, scales: Scales) -> Self {
        Self { scales, ..self }
    }

    /// Number of tokens of all texts.
    pub const fn tokens(&self) -> usize {
        self.tokens
    }
}

/// The embeddings of a job, once it has ended.
#[derive(Clone, Debug)]
pub struct Embedded {
    /// The values of each text, as [`Engine::embed`](terrace_engine::Engine::embed) returns them.
    pub values: Vec<Vec<f32>>,
    /// The model's epoch at the end of the job.
    pub epoch: u64,
    /// Milliseconds that it took, without the wait for its turn.
    pub ms: f64,
}

/// Called with the outcome on the worker's thread; dropped if the job is cancelled or the worker ends.
pub type EmbedDone = Box<dyn FnOnce(Result<Embedded, EngineError>) + Send>;

/// A waiting job.
pub struct EmbedRequest {
    pub job: EmbedJob,
    pub done: EmbedDone,
    pub standing: Arc<Standing>,
}
