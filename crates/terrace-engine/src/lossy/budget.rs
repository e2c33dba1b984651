//! A quality budget while a model runs: exact passes beside lossy ones, and the settings that follow.

use super::controller::{Controller, Turn};
use super::{LoadedLow, LossySettings};
use crate::engine::Engine;
use crate::token_probs::log_sum_exp;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::time::{Duration, Instant};
use terrace_backend::{LossyRouting, PassKind, SparedLayer};
use terrace_ggml::llama::{Batch, ContextError, State, StatePart};
use terrace_model::LayerId;

/// The weight below which experts of the first layer are left out, as a share of that in the others: there, the same squares of
/// weights cost 1.9 to 3.6 times as much (`docs/benchmarks/quality.md`), because all other layers see the error.
const FIRST_LAYER_LIMIT: f32 = 0.55;

/// A budget that is kept.
#[derive(Debug)]
pub struct Budget {
    controller: Controller,
    /// The settings as they were asked for.
    settings: LossySettings,
    /// See [`LoadedLow::below_per_drop`]; 0 without such a file.
    low_below_per_drop: f64,
    /// The first layer with experts.
    first: Option<LayerId>,
    /// Reused: the logits of a pass with loss.
    logits: Vec<f32>,
    /// When the last token was measured, and how long the disk had been read until then.
    measured: Option<(Instant, Duration)>,
}

/// The state of a budget since the load, or since it was set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BudgetSpent {
    /// The budget: the mean Kullback-Leibler divergence per token, in nats.
    pub budget: f64,
    /// The mean divergence of all tokens, as measured on some.
    pub spent: f64,
    /// Tokens that were computed within the budget.
    pub tokens: u64,
    /// Of these, those that were computed exactly as well, to measure them.
    pub exact_passes: u64,
    /// The settings now.
    pub prior: f64,
    #[doc = "See [`BudgetSpent::prior`]."]
    pub drop: f64,
    /// 0 without a file of experts in fewer bits.
    pub low_below: f64,
}

impl Budget {
    /// Begins to keep the budget of these settings, with the loaded file of experts in fewer bits, for a model whose first
    /// layer with experts is `first`; `None` if they have none.
    pub fn of(settings: &LossySettings, low: Option<&LoadedLow>, first: Option<LayerId>) -> Option<Self> {
        let controller = Controller::new(settings.budget()?);
        Some(Self {
            controller: if settings.low.is_some() { controller.with_low() } else { controller },
            settings: settings.clone(),
            low_below_per_drop: low.map_or(0.0, |low| low.below_per_drop),
            first,
            logits: Vec::new(),
            measured: None,
        })
    }

    /// The settings for the next token, in all layers but the first.
    fn now(&self) -> LossySettings {
        self.settings.at(self.controller.strength(), self.low_below_per_drop)
    }

    /// The deviations that the next token is permitted.
    pub fn routing(&self) -> Option<LossyRouting> {
        let spared = self.first.map(|layer| SparedLayer { layer, limit: FIRST_LAYER_LIMIT });
        self.now().routing().map(|routing| LossyRouting { spared, ..routing })
    }

    /// The state so far.
    pub fn spent(&self) -> BudgetSpent {
        let LossySettings { prior, drop, low_below, .. } = self.now();
        let controller = &self.controller;
        BudgetSpent {
            budget: controller.budget(),
            spent: controller.spent(),
            tokens: controller.tokens(),
            exact_passes: controller.measurements(),
            prior,
            drop,
            low_below,
        }
    }
}

impl Engine {
    /// State of the quality budget; `None` if there is none.
    pub fn budget_spent(&self) -> Option<BudgetSpent> {
        self.quality().map(Budget::spent)
    }

    /// Computes tokens within the quality budget. A lone token that is to be measured is computed once more, exactly: what
    /// the context then holds of it, and its logits, are the exact ones. Its experts stay in memory until then, and so does a
    /// copy of what the model keeps of earlier tokens, if it keeps states.
    ///
    /// # Errors
    /// As [`Engine::decode`].
    pub(crate) fn decode_within_budget(&mut self, batch: &mut Batch) -> Result<(), ContextError> {
        let measured = batch.alone().filter(|_| self.quality().is_some_and(|b| b.controller.measures_next()));
        let Some((sequence, position)) = measured else {
            return self.decode_once(batch, PassKind::Decode).map(|()| self.count_within_budget(batch));
        };
        // A first token is simply removed.
        let kept = (self.model().has_states() && position > 0)
            .then(|| self.context().copy_state(sequence, position, StatePart::Uncuttable))
            .transpose();
        self.hold_experts(true);
        let decoded = self.decode_once(batch, PassKind::Decode).and_then(|()| {
            self.count_within_budget(batch);
            match kept {
                Ok(kept) => self.measure(batch, (sequence, position), kept.as_ref()),
                Err(error) => {
                    self.end_budget(error);
                    Ok(())
                }
            }
        });
        self.hold_experts(false);
        decoded
    }

    /// Counts a lone token that was computed within the budget.
    fn count_within_budget(&mut self, batch: &Batch) {
        if batch.alone().is_some()
            && let Some((budget, _)) = self.quality_and_context()
            && budget.controller.count() == Turn::Change
        {
            self.route_by_budget();
        }
    }

    /// Computes the token at this place of a sequence once more, exactly, and compares its logits with those that it has. `kept`:
    /// the states before it, if the model has such.
    fn measure(
        &mut self,
        batch: &mut Batch,
        place: (u32, u32),
        kept: Option<&State>,
    ) -> Result<(), ContextError> {
        let Some((budget, context)) = self.quality_and_context() else { return Ok(()) };
        let (sequence, position) = place;
        budget.logits.clear();
        budget.logits.extend_from_slice(context.row(0));
        if let Some(kept) = kept {
            context.put_state(sequence, kept, true)?;
        }
        if !context.truncate(sequence, position) {
            self.end_budget("llama.cpp keeps it");
            return Ok(());
        }
        self.route(None);
        let exact = self.decode_once(batch, PassKind::Decode);
        if exact.is_ok() {
            let read = self.store_stats().map_or(Duration::ZERO, |stats| stats.io_busy);
            let Some((budget, context)) = self.quality_and_context() else { return exact };
            let now = Instant::now();
            let busy = budget.measured.replace((now, read)).map_or(1.0, |(then, before)| {
                read.saturating_sub(before).as_secs_f64() / (now - then).as_secs_f64().max(f64::MIN_POSITIVE)
            });
            let kld = divergence(context.row(0), &budget.logits);
            budget.controller.measured(kld, busy);
            tracing::debug!(kld, busy, strength = budget.controller.strength(), "measured a token");
        }
        self.route_by_budget();
        exact
    }

    /// Computes exactly from now on, because no token can be measured.
    fn end_budget(&mut self, reason: impl Display) {
        tracing::warn!("the last token cannot be computed again ({reason}); generation is exact from now on");
        self.lose_nothing();
    }

    /// Has what the next passes use stay in memory, or ends that.
    fn hold_experts(&self, on: bool) {
        if let Some(weights) = self.weights() {
            weights.store().hold(on);
        }
    }

    /// Has the next token computed with the settings that the budget permits.
    fn route_by_budget(&mut self) {
        self.route(self.quality().and_then(Budget::routing));
    }
}

/// The Kullback-Leibler divergence, in nats, of a prediction from the exact one, both as logits.
fn divergence(exact: &[f32], other: &[f32]) -> f64 {
    let normal = [exact, other].map(log_sum_exp);
    let terms = exact.iter().zip(other).map(|(&exact, &other)| {
        let [exact, other] = [f64::from(exact) - normal[0], f64::from(other) - normal[1]];
        let p = exact.exp();
        if p > 0.0 { p * (exact - other) } else { 0.0 }
    });
    terms.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_divergence_is_that_of_the_probabilities() {
        let ln = |probabilities: [f64; 3], offset: f64| probabilities.map(|p| (p.ln() + offset) as f32);
        let (p, q) = ([0.5_f64, 0.25, 0.25], [0.25_f64, 0.25, 0.5]);
        let expected: f64 = p.iter().zip(&q).map(|(p, q)| p * (p / q).ln()).sum();
        assert!((divergence(&ln(p, 3.0), &ln(q, -7.0)) - expected).abs() < 1e-6);
        assert!(divergence(&ln(p, 0.0), &ln(p, 40.0)).abs() < 1e-5);
        // What is impossible in the exact one costs nothing; what is impossible in the other costs all.
        let (one, other) = ([0.0, f32::NEG_INFINITY], [0.0, 0.0]);
        assert!((divergence(&one, &other) - 2_f64.ln()).abs() < 1e-6);
        assert_eq!(divergence(&other, &one), f64::INFINITY);
    }
}
