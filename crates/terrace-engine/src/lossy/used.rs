//! What was lost during an answer.

use super::{LossyCost, LossyPlan, LossySettings};
use crate::engine::Engine;
use serde::Serialize;
use terrace_backend::LossyCounts;

/// What was lost during an answer. Where other answers were generated at the same time, theirs counts as
/// well.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LossyUsed {
    /// What was done.
    pub settings: LossySettings,
    /// What that costs; `None`: it was not measured.
    pub cost: Option<LossyCost>,
    /// Pairs of token and expert, and what was changed of them.
    #[serde(flatten)]
    pub counts: LossyCounts,
}

impl Engine {
    /// What lossy routing has changed since the load; all zeros if there is none.
    pub fn lossy_counts(&self) -> LossyCounts {
        self.weights().map(|weights| weights.lossy_counts()).unwrap_or_default()
    }

    /// What was lost since the counts were `before`; `None` if generation is exact.
    pub(crate) fn lossy_since(&self, before: LossyCounts) -> Option<LossyUsed> {
        let LossyPlan { settings, cost } = self.plan().lossy.as_ref()?;
        let counts = self.lossy_counts().since(before);
        Some(LossyUsed { settings: settings.clone(), cost: *cost, counts })
    }
}
