//! How well a model predicts a text: its perplexity, counted as llama.cpp's `perplexity` tool counts it.

use crate::chunks::Chunks;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::log_softmax::nlls;
use serde::Serialize;
use std::ops::ControlFlow;
use std::time::Instant;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerplexityOptions {
    /// Tokens in a chunk, evaluated together; no more than the engine's context.
    pub context: usize,
    /// How many chunks at most; none: all of the text.
    pub chunks: Option<usize>,
}

impl Default for PerplexityOptions {
    fn default() -> Self {
        Self { context: 512, chunks: None }
    }
}

/// How far a measurement has come.
#[derive(Clone, Copy, Debug)]
pub struct PerplexityProgress {
    /// Chunks done.
    pub done: usize,
    /// Chunks to do.
    pub chunks: usize,
    /// The perplexity so far.
    pub perplexity: f64,
    /// Seconds so far.
    pub seconds: f64,
}

/// The perplexity of a text.
#[derive(Clone, Debug, Serialize)]
pub struct PerplexityReport {
    /// `exp(mean of nll)`.
    pub perplexity: f64,
    /// Its standard error: the perplexity times the standard error of the mean. None for tokens without any variance.
    pub error: Option<f64>,
    /// Chunks evaluated.
    pub chunks: usize,
    /// Tokens in a chunk.
    pub context: usize,
    /// Tokens scored.
    pub scored: usize,
    /// Tokens evaluated.
    pub tokens: usize,
    /// How long it took.
    pub seconds: f64,
    /// Tokens evaluated per second.
    pub tokens_per_second: f64,
    /// Negative log likelihood of each scored token, in order.
    #[serde(skip)]
    pub nll: Vec<f64>,
}

impl Engine {
    /// The perplexity of a text, given as its tokens; `progress` is told after each chunk and may end the measurement.
    /// Forgets what the context held.
    ///
    /// # Errors
    /// A text below two chunks, a chunk above the context; the context's; [`EngineError::Cancelled`].
    pub fn perplexity(
        &mut self,
        tokens: &[i32],
        options: &PerplexityOptions,
        progress: &mut dyn FnMut(&PerplexityProgress) -> ControlFlow<()>,
    ) -> Result<PerplexityReport, EngineError> {
        self.perplexity_keeping(tokens, options, options.context / 2, progress)
    }

    /// Like [`Engine::perplexity`], with the logits of all tokens from position `keep` of each chunk on computed. What is
    /// scored stays the same.
    pub(crate) fn perplexity_keeping(
        &mut self,
        tokens: &[i32],
        options: &PerplexityOptions,
        keep: usize,
        progress: &mut dyn FnMut(&PerplexityProgress) -> ControlFlow<()>,
    ) -> Result<PerplexityReport, EngineError> {
        let chunks = Chunks::of(tokens.len(), options.context, options.chunks)?;
        if chunks.context > self.context_size() {
            return Err(EngineError::PromptTooLong {
                prompt: chunks.context,
                used: 0,
                context: self.context_size(),
            });
        }
        let (vocab, threads) = (self.vocab().len(), self.plan().threads);
        let begin = Instant::now();
        let mut nll: Vec<f64> = Vec::with_capacity(chunks.count * chunks.scored());
        for index in 0..chunks.count {
            let chunk = &tokens[chunks.range(index)];
            self.evaluate_chunk(chunk, keep, &mut |position, rows| {
                let end = chunk.len().min(position + 1 + rows.len() / vocab);
                let first = position.max(chunks.first());
                if first + 1 < end {
                    let rows = &rows[(first - position) * vocab..];
                    nll.extend(nlls(rows, vocab, &chunk[first + 1..end], threads));
                }
            })?;
            let report = PerplexityProgress {
                done: index + 1,
                chunks: chunks.count,
                perplexity: Mean::of(&nll).value.exp(),
                seconds: begin.elapsed().as_secs_f64(),
            };
            if progress(&report).is_break() {
                return Err(EngineError::Cancelled);
            }
        }
        Ok(PerplexityReport::new(chunks, nll, begin.elapsed().as_secs_f64()))
    }
}

impl PerplexityReport {
    fn new(chunks: Chunks, nll: Vec<f64>, seconds: f64) -> Self {
        let mean = Mean::of(&nll);
        let perplexity = mean.value.exp();
        let tokens = chunks.count * chunks.context;
        Self {
            perplexity,
            error: mean.error.map(|error| error * perplexity),
            chunks: chunks.count,
            context: chunks.context,
            scored: nll.len(),
            tokens,
            seconds,
            tokens_per_second: tokens as f64 / seconds.max(f64::MIN_POSITIVE),
            nll,
        }
    }
}

/// A mean and its standard error, from sums of values and squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Its standard error; none without variance.
    pub error: Option<f64>,
}

impl Mean {
    /// Of these values.
    pub fn of(values: &[f64]) -> Self {
        let sum: f64 = values.iter().sum();
        let squares: f64 = values.iter().map(|v| v * v).sum();
        let n = values.len() as f64;
        let value = sum / n;
        let variance = squares / n - value * value;
        Self { value, error: (variance > 0.0).then(|| (variance / (n - 1.0)).sqrt()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_have_their_standard_error() {
        let mean = Mean::of(&[1.0, 2.0, 3.0, 6.0]);
        assert_eq!(mean.value, 3.0);
        // Variance 14/4 around the mean, over n - 1.
        assert!((mean.error.unwrap() - (3.5_f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(Mean::of(&[2.0, 2.0]).error, None);
    }
}
