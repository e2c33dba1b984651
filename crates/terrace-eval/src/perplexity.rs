//! Perplexity: how well a model predicts a text, computed as llama.cpp's `perplexity` tool does.

use crate::base_logits::LogitsFile;
use crate::chunks::{Chunks, PerplexityOptions, Scored, score_chunk};
use crate::error::EvalError;
use crate::stats::log_softmax::nlls;
use crate::stats::mean::Mean;
use serde::Serialize;
use std::ops::ControlFlow;
use std::time::Instant;
use terrace_engine::{Engine, Logits};

/// Progress of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct PerplexityProgress {
    /// Chunks done.
    pub done: usize,
    /// Chunks to do.
    pub chunks: usize,
    /// The perplexity so far.
    pub perplexity: f64,
    /// Its standard error; `None` if there is no variance.
    pub error: Option<f64>,
    /// Seconds so far.
    pub seconds: f64,
}

/// The perplexity of a text.
#[derive(Clone, Debug, Serialize)]
pub struct PerplexityReport {
    /// `exp(mean of nll)`.
    pub perplexity: f64,
    /// Its standard error: the perplexity times the standard error of the mean; `None` if there is
    /// no variance.
    pub error: Option<f64>,
    /// Chunks evaluated.
    pub chunks: usize,
    /// Tokens in a chunk.
    pub context: usize,
    /// Tokens scored.
    pub scored: usize,
    /// Tokens evaluated.
    pub tokens: usize,
    /// Duration in seconds.
    pub seconds: f64,
    /// Tokens evaluated per second.
    pub tokens_per_second: f64,
    /// Negative log likelihood of each scored token, in order.
    #[serde(skip)]
    pub nll: Vec<f64>,
}

/// Measures the perplexity of a text, given as tokens. `progress` is called after each chunk and
/// may end the measurement. Clears the context.
///
/// # Errors
/// If the text has fewer than two chunks, or a chunk exceeds the context; [`EvalError::Cancelled`];
/// errors of the context.
pub fn perplexity(
    engine: &mut Engine,
    tokens: &[i32],
    options: &PerplexityOptions,
    progress: &mut dyn FnMut(&PerplexityProgress) -> ControlFlow<()>,
) -> Result<PerplexityReport, EvalError> {
    perplexity_keeping(engine, tokens, options, options.context / 2, progress)
}

/// Like [`perplexity`], but computes the logits of all tokens of a chunk from position `keep`. The
/// same positions are scored.
pub fn perplexity_keeping(
    engine: &mut Engine,
    tokens: &[i32],
    options: &PerplexityOptions,
    keep: usize,
    progress: &mut dyn FnMut(&PerplexityProgress) -> ControlFlow<()>,
) -> Result<PerplexityReport, EvalError> {
    let chunks = Chunks::of(tokens.len(), options.context, options.chunks)?;
    perplexity_of(&mut Logits::new(engine), tokens, chunks, keep, &mut |_| Ok(()), progress)
}

/// Measures the perplexity of chunks; `also` gets everything that is scored.
fn perplexity_of(
    logits: &mut Logits<'_>,
    tokens: &[i32],
    chunks: Chunks,
    keep: usize,
    also: &mut dyn FnMut(&Scored<'_>) -> Result<(), EvalError>,
    progress: &mut dyn FnMut(&PerplexityProgress) -> ControlFlow<()>,
) -> Result<PerplexityReport, EvalError> {
    let begin = Instant::now();
    let mut nll: Vec<f64> = Vec::with_capacity(chunks.count * chunks.scored());
    for index in 0..chunks.count {
        score_chunk(logits, tokens, chunks, index, keep, &mut |scored| {
            let new = nlls(scored.rows, scored.vocab, scored.targets, scored.threads);
            scored.check(new.iter().copied())?;
            nll.extend(new);
            also(scored)
        })?;
        let so_far = Mean::of(&nll).exp();
        let report = PerplexityProgress {
            done: index + 1,
            chunks: chunks.count,
            perplexity: so_far.value,
            error: so_far.error,
            seconds: begin.elapsed().as_secs_f64(),
        };
        if progress(&report).is_break() {
            return Err(EvalError::Cancelled);
        }
    }
    Ok(PerplexityReport::new(chunks, nll, begin.elapsed().as_secs_f64()))
}

/// Measures the perplexity of a text like [`perplexity`], and writes the log probabilities of all
/// tokens at each scored position to `file`, for [`divergence`](crate::divergence()) and
/// llama.cpp's `perplexity --kl-divergence`. The file takes about 2 bytes per vocabulary entry and
/// position.
///
/// # Errors
/// As [`perplexity`]; also if the file cannot be written. The file appears only if there is no
/// error.
pub fn save_logits(
    engine: &mut Engine,
    tokens: &[i32],
    options: &PerplexityOptions,
    file: LogitsFile,
    progress: &mut dyn FnMut(&PerplexityProgress) -> ControlFlow<()>,
) -> Result<PerplexityReport, EvalError> {
    let chunks = Chunks::of(tokens.len(), options.context, options.chunks)?;
    let mut logits = Logits::new(engine);
    let mut report = None;
    file.fill(chunks, logits.vocab(), tokens, |writer| {
        let also = &mut |scored: &Scored<'_>| Ok(writer.write(scored.rows, scored.threads)?);
        report = Some(perplexity_of(&mut logits, tokens, chunks, chunks.first(), also, progress)?);
        Ok::<_, EvalError>(())
    })?;
    Ok(report.expect("the file was filled"))
}

impl PerplexityReport {
    fn new(chunks: Chunks, nll: Vec<f64>, seconds: f64) -> Self {
        let mean = Mean::of(&nll).exp();
        let tokens = chunks.count * chunks.context;
        Self {
            perplexity: mean.value,
            error: mean.error,
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
