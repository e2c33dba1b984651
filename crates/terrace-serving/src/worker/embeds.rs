//! Computes at most one graph of one job that embeds in each round, beside what is done for answers.

use super::Worker;
use crate::embed::{EmbedDone, EmbedJob, EmbedRequest, Embedded};
use crate::job::Prompt;
use crate::standing::Standing;
use std::sync::Arc;
use std::time::Instant;
use terrace_engine::steps::{Embedding, Evaluated};
use terrace_engine::{EngineError, Scales};

/// The job that is being computed.
pub struct EmbedWork {
    /// Texts that are left, the next one last, and the one that is being computed.
    left: Vec<Prompt>,
    scales: Scales,
    current: Embedding,
    values: Vec<Vec<f32>>,
    done: EmbedDone,
    pub standing: Arc<Standing>,
    /// True if it waits for the pending reload.
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
                self.totals.embedded_tokens += work.current.count() as u64;
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

    /// Returns whether there is something to embed now.
    pub(super) fn embeds(&self) -> bool {
        self.embedding.as_ref().map_or_else(|| self.queue.has_embeds(), |work| !work.stalled)
    }
}
