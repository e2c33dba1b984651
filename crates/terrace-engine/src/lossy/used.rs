//! What was lost during an answer.

use super::{LossyCost, LossyMark, LossyPlan, LossySettings};
use crate::engine::Engine;
use crate::report::PlanReport;
use serde::Serialize;
use terrace_backend::LossyCounts;

/// What is lost, and what was lost during an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LossyUsed {
    /// The settings in effect; at least one.
    pub marks: Vec<LossyMark>,
    /// What routing lost during an answer; `None` if it is exact, and apart from answers.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub routing: Option<RoutingUsed>,
}

/// What lossy settings of the routing changed during an answer. Where other answers were generated at
/// the same time, theirs counts as well.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoutingUsed {
    /// What was done.
    pub settings: LossySettings,
    /// What that costs; `None`: it was not measured.
    pub cost: Option<LossyCost>,
    /// Pairs of token and expert, and what was changed of them.
    #[serde(flatten)]
    pub counts: LossyCounts,
}

impl LossyUsed {
    /// What is lost in a run with this plan; `None` if the model is computed exactly.
    pub fn of(plan: &PlanReport) -> Option<Self> {
        Self::marked(plan.lossy_marks())
    }

    /// What these marks stand for; `None` if there are none.
    pub(crate) fn marked(marks: Vec<LossyMark>) -> Option<Self> {
        (!marks.is_empty()).then_some(Self { marks, routing: None })
    }
}

impl Engine {
    /// What lossy routing has changed since the load; all zeros if there is none.
    pub fn lossy_counts(&self) -> LossyCounts {
        self.weights().map(|weights| weights.lossy_counts()).unwrap_or_default()
    }

    /// What was lost since the counts were `before`; `None` if generation is exact.
    pub fn lossy_since(&self, before: LossyCounts) -> Option<LossyUsed> {
        let lossy = LossyUsed::of(self.plan())?;
        let used = |LossyPlan { settings, cost }: &LossyPlan| {
            let counts = self.lossy_counts().since(before);
            RoutingUsed { settings: settings.clone(), cost: *cost, counts }
        };
        let routing = self.plan().lossy.as_ref().map(used);
        Some(LossyUsed { routing, ..lossy })
    }
}
