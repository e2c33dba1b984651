//! Jobs that embed texts. The worker computes at most one graph of one of them in each round, beside
//! what it does for answers.

use super::facts::ModelFacts;
use super::job::{Prompt, Refused};
use super::queue::Standing;
use super::worker::Worker;
use std::sync::Arc;
use std::time::Instant;
use terrace_engine::EngineError;
use terrace_engine::Scales;
use terrace_engine::steps::Embedding;
use terrace_engine::steps::Evaluated;
use terrace_ggml::llama::Pooling;

/// Maximum number of texts of a job.
const MOST_TEXTS: usize = 2048;
/// Maximum number of values that a job may leave.
const MOST_VALUES: usize = 1 << 24;

/// Texts to embed: each fits the context for embeddings, and has only tokens of the vocabulary.
#[derive(Clone, Debug)]
pub struct EmbedJob {
    texts: Vec<Prompt>,
    tokens: usize,
    scales: Scales,
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

/// What a job has left.
#[derive(Clone, Debug)]
pub struct Embedded {
    /// The values of each text, as [`Engine::embed`](Engine::embed) returns them.
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

/// The job that is being computed.
pub struct EmbedWork {
    /// Texts that are left, the next one last, and the one that is being computed.
    left: Vec<Prompt>,
    scales: Scales,
    current: Embedding,
    values: Vec<Vec<f32>>,
    done: EmbedDone,
    pub standing: Arc<Standing>,
    /// Whether it waits for the pending reload.
    pub stalled: bool,
    begun: Instant,
}

impl EmbedWork {
    fn begin(EmbedRequest { job, done, standing }: EmbedRequest) -> Self {
        let values = Vec::with_capacity(job.texts.len());
        let EmbedJob { texts: mut left, scales, .. } = job;
        left.reverse();
        let current = Embedding::new(left.pop().map_or_else(Vec::new, Prompt::into_tokens), scales.clone());
        Self { left, scales, current, values, done, standing, stalled: false, begun: Instant::now() }
    }

    /// Notes that tensors were replaced.
    pub fn reloaded(&mut self) {
        self.current.restart();
    }
}

impl Worker {
    /// Computes one graph of the job that embeds, or of the next one.
    pub(super) fn embed(&mut self) {
        if self.embedding.is_none() {
            self.embedding = self.queue.take_embed().map(EmbedWork::begin);
        }
        let Some(work) = self.embedding.as_mut().filter(|work| !work.stalled) else { return };
        let begin = Instant::now();
        let evaluated = self.engine.embed_some(&mut work.current, &mut self.batch);
        self.totals.embedding_seconds += begin.elapsed().as_secs_f64();
        match evaluated {
            Ok(Evaluated::Part) => {}
            Ok(Evaluated::Again) => work.stalled = true,
            Ok(Evaluated::Interrupted) => self.cancel_embedding(),
            Ok(Evaluated::All) => {
                self.totals.embedded_tokens += work.current.len() as u64;
                let next =
                    work.left.pop().map(|text| Embedding::new(text.into_tokens(), work.scales.clone()));
                let last = next.is_none();
                let ended = std::mem::replace(&mut work.current, next.unwrap_or_default());
                work.values.push(ended.into_values());
                if last {
                    self.embedded(None);
                }
            }
            Err(error) => self.embedded(Some(error)),
        }
    }

    /// Ends the job that embeds.
    fn embedded(&mut self, error: Option<EngineError>) {
        let Some(EmbedWork { values, done, begun, .. }) = self.embedding.take() else { return };
        let epoch = self.engine.epoch();
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        match &error {
            None => self.totals.embedded_jobs += 1,
            Some(_) => self.totals.ended.failed += 1,
        }
        self.worked();
        self.show();
        done(error.map_or(Ok(Embedded { values, epoch, ms }), Err));
    }

    /// Ends the job that embeds without an outcome.
    pub(super) fn cancel_embedding(&mut self) {
        if self.embedding.take().is_some() {
            self.totals.ended.cancelled += 1;
        }
    }

    /// Whether there is something to embed now.
    pub(super) fn embeds(&self) -> bool {
        self.embedding.as_ref().map_or_else(|| self.queue.has_embeds(), |work| !work.stalled)
    }
}
