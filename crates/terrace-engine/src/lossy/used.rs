//! Loss during a response.

use super::{BudgetSpent, LossyCost, LossyMark, LossyPlan, LossySettings};
use crate::engine::Engine;
use crate::report::PlanReport;
use serde::Serialize;
use terrace_backend::LossyCounts;

/// Loss of a run, and during a response.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LossyUsed {
    /// The settings in effect; at least one.
    pub marks: Vec<LossyMark>,
    /// Loss by routing during a response; `None` if it is exact, and apart from responses.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub routing: Option<RoutingUsed>,
}

/// Changes by lossy settings of the routing during a response. Where others were generated at
/// the same time, theirs counts as well.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoutingUsed {
    /// Settings.
    pub settings: LossySettings,
    /// Their cost; `None`: it was not measured.
    pub cost: Option<LossyCost>,
    /// The quality budget since the load; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetSpent>,
    /// Pairs of token and expert, and what was changed of them.
    #[serde(flatten)]
    pub counts: LossyCounts,
}

impl LossyUsed {
    /// Loss in a run with this plan; `None` if the model is computed exactly.
    pub fn of(plan: &PlanReport) -> Option<Self> {
        Self::marked(plan.lossy_marks())
    }

    /// Meaning of these marks; `None` if there are none.
    pub(crate) fn marked(marks: Vec<LossyMark>) -> Option<Self> {
        (!marks.is_empty()).then_some(Self { marks, routing: None })
    }
}

impl Engine {
    /// Changes by lossy routing since the load; all zeros if there is none.
    pub fn lossy_counts(&self) -> LossyCounts {
        self.weights().map(|weights| weights.lossy_counts()).unwrap_or_default()
    }

    /// Loss since the counts were `before`; `None` if generation is exact.
    pub fn lossy_since(&self, before: LossyCounts) -> Option<LossyUsed> {
        let lossy = LossyUsed::of(self.plan())?;
        let used = |LossyPlan { settings, cost }: &LossyPlan| {
            let counts = self.lossy_counts().since(before);
            RoutingUsed { settings: settings.clone(), cost: *cost, budget: self.budget_spent(), counts }
        };
        let routing = self.plan().lossy.as_ref().map(used);
        Some(LossyUsed { routing, ..lossy })
    }
}
