//! Measures on a text which layers could be skipped.

use super::similarity::Similarity;
use crate::chunks::PerplexityOptions;
use crate::error::EvalError;
use crate::perplexity::{PerplexityProgress, PerplexityReport, perplexity_keeping};
use std::ops::ControlFlow;
use terrace_engine::{Engine, EngineError, LayerSkip, LoadProgress, Measured, Options};

/// An engine whose residual stream is observed.
pub struct Calibrator {
    engine: Engine,
    similarity: Similarity,
}

/// The pass of a calibration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalibrationPass {
    /// Similarities, and the perplexity of all layers.
    Similarity,
    /// The perplexity without the skipped layers.
    Skipping,
}

impl Calibrator {
    /// Loads a model like [`Engine::load`].
    ///
    /// # Errors
    /// As [`Engine::load`].
    pub fn load(
        options: Options,
        progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
    ) -> Result<Self, EngineError> {
        let similarity = Similarity::default();
        let engine = Engine::load_observed(options, Some(Box::new(similarity.clone())), progress)?;
        Ok(Self { engine, similarity })
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Measures the similarity of each layer's input and output over the chunks of a text, selects
    /// the streamed layers above `threshold` (never the first or the last), and measures the
    /// perplexity with and without skipping them.
    ///
    /// # Errors
    /// As [`perplexity`](crate::perplexity()); also if a layer cannot be skipped in the model's
    /// graphs.
    pub fn calibrate(
        &mut self,
        tokens: &[i32],
        options: &PerplexityOptions,
        threshold: f64,
        progress: &mut dyn FnMut(CalibrationPass, &PerplexityProgress) -> ControlFlow<()>,
    ) -> Result<LayerSkip, EvalError> {
        self.engine.skip_layers(&[])?;
        self.similarity.observe(true);
        // Logits of all tokens: otherwise the last layer would compute only some tokens.
        let keep = 0;
        let without = perplexity_keeping(&mut self.engine, tokens, options, keep, &mut |p| {
            progress(CalibrationPass::Similarity, p)
        });
        self.similarity.observe(false);
        let without = measured(&without?);
        let similarity = self.similarity.by_layer();
        if similarity.is_empty() {
            return Err(EvalError::NoLayers);
        }
        let inner = similarity.get(1..similarity.len() - 1).unwrap_or_default();
        let streamed = self.engine.streamed_layers();
        let skip: Vec<u32> = (1..)
            .zip(inner)
            .filter(|(layer, s)| s.is_some_and(|s| s > threshold) && streamed.contains(layer))
            .map(|(layer, _)| layer)
            .collect();
        let with = if skip.is_empty() {
            without
        } else {
            self.engine.skip_layers(&skip)?;
            let with = perplexity_keeping(&mut self.engine, tokens, options, keep, &mut |p| {
                progress(CalibrationPass::Skipping, p)
            });
            self.engine.skip_layers(&[])?;
            measured(&with?)
        };
        Ok(LayerSkip::new(self.engine.identity().clone(), similarity, threshold, skip, [without, with]))
    }
}

fn measured(report: &PerplexityReport) -> Measured {
    let &PerplexityReport { perplexity, error, chunks, context, .. } = report;
    Measured { perplexity, error, chunks, context }
}
