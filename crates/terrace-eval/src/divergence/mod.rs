//! Measures how far a model's predictions diverge from those of another model, stored in a base
//! file, as llama.cpp's `perplexity --kl-divergence` does.

mod compare;
mod statistics;

pub use compare::Compared;
pub use statistics::{DivergenceSummary, Estimate, Percentiles};

use crate::base_logits::BaseLogits;
use crate::chunks::{PerplexityOptions, score_chunk};
use crate::error::EvalError;
use crate::threads::on_threads;
use serde::Serialize;
use std::ops::ControlFlow;
use std::time::Instant;
use terrace_engine::{Engine, Logits};

/// Progress of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct DivergenceProgress {
    /// Chunks done.
    pub done: usize,
    /// Chunks to do.
    pub chunks: usize,
    /// The figures so far.
    pub so_far: DivergenceSummary,
    /// Seconds so far.
    pub seconds: f64,
}

/// Divergence of a model from its base on a text.
#[derive(Clone, Debug, Serialize)]
pub struct DivergenceReport {
    /// Chunks evaluated.
    pub chunks: usize,
    /// Tokens in a chunk.
    pub context: usize,
    /// Tokens evaluated.
    pub tokens: usize,
    /// Duration in seconds.
    pub seconds: f64,
    /// Tokens evaluated per second.
    pub tokens_per_second: f64,
    /// Means and their standard errors.
    #[serde(flatten)]
    pub summary: DivergenceSummary,
    /// Distribution of the divergences of single positions.
    pub kld_percentiles: Percentiles,
    /// Distribution of the changes in probability of the token that follows, -1 to 1.
    pub delta_p_percentiles: Percentiles,
    /// Each scored position's comparison, in order.
    #[serde(skip)]
    pub compared: Vec<Compared>,
}

/// Compares this model's predictions for a text with a base's. `text` has to be the tokens from
/// which the base was made ([`BaseLogits::tokens`]); [`PerplexityOptions::chunks`] may request
/// fewer chunks than the base has. `progress` is called after each chunk and may end the
/// comparison. Clears the context. A base can be used for any number of comparisons.
///
/// # Errors
/// [`EvalError::BaseLogits`] if the base has another vocabulary, other chunks or another text, or
/// cannot be read; otherwise as [`perplexity`](crate::perplexity()), except that one chunk is
/// enough.
pub fn divergence(
    engine: &mut Engine,
    text: &[i32],
    options: &PerplexityOptions,
    base: &mut BaseLogits,
    progress: &mut dyn FnMut(&DivergenceProgress) -> ControlFlow<()>,
) -> Result<DivergenceReport, EvalError> {
    let mut logits = Logits::new(engine);
    let chunks = base.chunks_of(text, logits.vocab(), options)?;
    let begin = Instant::now();
    let mut all: Vec<Compared> = Vec::with_capacity(chunks.count * chunks.scored());
    for index in 0..chunks.count {
        score_chunk(&mut logits, text, chunks, index, chunks.first(), &mut |scored| {
            let rows = base.chunk(index)?;
            let mut compared = vec![Compared::default(); scored.targets.len()];
            let own = scored.rows.chunks_exact(scored.vocab);
            let jobs = compared.iter_mut().zip(own).zip(&rows[scored.first..]).zip(scored.targets).collect();
            on_threads(scored.threads, jobs, |(((out, logits), &base), &target)| {
                *out = compare::compare(logits, base, target);
            });
            scored.check(compared.iter().map(|compared| compared.nll))?;
            all.extend(compared);
            Ok(())
        })?;
        let report = DivergenceProgress {
            done: index + 1,
            chunks: chunks.count,
            so_far: DivergenceSummary::of(&all),
            seconds: begin.elapsed().as_secs_f64(),
        };
        if progress(&report).is_break() {
            return Err(EvalError::Cancelled);
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let tokens = chunks.count * chunks.context;
    Ok(DivergenceReport {
        chunks: chunks.count,
        context: chunks.context,
        tokens,
        seconds,
        tokens_per_second: tokens as f64 / seconds.max(f64::MIN_POSITIVE),
        summary: DivergenceSummary::of(&all),
        kld_percentiles: Percentiles::of(all.iter().map(|compared| compared.kld).collect()),
        delta_p_percentiles: Percentiles::of(all.iter().map(|compared| compared.delta_p).collect()),
        compared: all,
    })
}
