//! Measures what lossy settings cost: the divergence of a model's predictions from its own without them,
//! and what is read.

use crate::base_logits::{BaseLogits, LogitsFile};
use crate::chunks::PerplexityOptions;
use crate::divergence::{DivergenceProgress, divergence};
use crate::error::EvalError;
use crate::perplexity::{PerplexityProgress, save_logits};
use std::ops::ControlFlow;
use std::path::Path;
use terrace_engine::{Engine, LossyCost, LossySettings};
use terrace_store::StoreStats;

/// Predictions without loss, and what they took.
pub struct LossyBase {
    predictions: BaseLogits,
    pub perplexity: f64,
    /// Bytes read per token.
    pub read_per_token: f64,
}

/// Evaluates a text without loss. The predictions go to a file at `path`, which has to stay as long as
/// the result. The engine has to evaluate tokens one by one
/// ([`ContextOptions::ubatch`](terrace_engine::options::ContextOptions::ubatch) of 1), as generation does.
///
/// # Errors
/// As [`save_logits`].
pub fn lossy_base(
    engine: &mut Engine,
    tokens: &[i32],
    options: &PerplexityOptions,
    path: &Path,
    progress: &mut dyn FnMut(&PerplexityProgress) -> ControlFlow<()>,
) -> Result<LossyBase, EvalError> {
    engine.lose(&LossySettings::default())?;
    let before = engine.store_stats();
    let report = save_logits(engine, tokens, options, LogitsFile::create(path)?, progress)?;
    Ok(LossyBase {
        predictions: BaseLogits::open(path)?,
        perplexity: report.perplexity,
        read_per_token: read_since(engine, before, report.tokens),
    })
}

/// Evaluates the base's text with loss. Of [`LossySettings::experts`], the engine has to be loaded with
/// the same.
///
/// # Errors
/// As [`divergence`]; [`EngineError`](terrace_engine::EngineError) if the model cannot be computed so.
pub fn lossy_cost(
    engine: &mut Engine,
    settings: &LossySettings,
    tokens: &[i32],
    options: &PerplexityOptions,
    base: &mut LossyBase,
    progress: &mut dyn FnMut(&DivergenceProgress) -> ControlFlow<()>,
) -> Result<LossyCost, EvalError> {
    engine.lose(settings)?;
    let (before, counted) = (engine.store_stats(), engine.lossy_counts());
    let compared = divergence(engine, tokens, options, &mut base.predictions, progress);
    let (counts, kept) = (engine.lossy_counts().since(counted), engine.budget_spent());
    engine.lose(&LossySettings { experts: settings.experts, ..LossySettings::default() })?;
    let compared = compared?;
    let share = |pairs: u64| if counts.pairs > 0 { pairs as f64 / counts.pairs as f64 } else { 0.0 };
    let summary = &compared.summary;
    Ok(LossyCost {
        kld: summary.kld.value,
        kld_error: summary.kld.error,
        perplexity: [base.perplexity, summary.perplexity.value],
        same_top: summary.same_top.value,
        read_per_token: [base.read_per_token, read_since(engine, before, compared.tokens)],
        substituted: share(counts.substituted),
        dropped: share(counts.dropped),
        low: share(counts.low),
        budget: engine.budget_now().unwrap_or_default(),
        kept,
        tokens: compared.tokens,
        scored: summary.scored,
    })
}

/// Bytes that were read for each of `tokens` tokens.
fn read_since(engine: &Engine, before: Option<StoreStats>, tokens: usize) -> f64 {
    let since = before.zip(engine.store_stats()).map(|(before, now)| now.since(&before)).unwrap_or_default();
    since.bytes_read.bytes() as f64 / tokens.max(1) as f64
}
