//! The RAM budget, of which tensors take more while they are not where they were loaded.

use super::error::ReloadError;
use crate::pressure::least_slots;
use terrace_backend::Weights;
use terrace_model::ByteSize;
use terrace_plan::Plan;
use terrace_store::BudgetHandle;

/// What reloads may take of a run's budget for weights.
#[derive(Debug)]
pub struct WeightBudget {
    budget: ByteSize,
    /// What neither resident weights nor slots have of it.
    spare: ByteSize,
    /// Slots can lend some; none: there are no slots.
    slots: Option<BudgetHandle>,
}

impl WeightBudget {
    /// The budget of a run that was planned so. `None` where all fits and no budget was set: what is available is what counts.
    pub fn of(plan: &Plan, weights: &Weights) -> Option<Self> {
        let streams = plan.slots > ByteSize::ZERO;
        if plan.auto_budget && !streams {
            return None;
        }
        let taken = plan.resident + plan.mapped + plan.slots;
        let slots = streams.then(|| {
            let store = weights.store();
            store.budget_handle(least_slots(plan, &weights.layout(), &store))
        });
        Some(Self { budget: plan.budget, spare: plan.budget.saturating_sub(taken), slots })
    }

    /// From now on `needed` bytes of the budget are for tensors beside what was loaded.
    ///
    /// # Errors
    /// [`ReloadError::OverBudget`]; nothing has changed.
    fn hold(&self, needed: ByteSize) -> Result<(), ReloadError> {
        let over = needed.saturating_sub(self.spare);
        let lent = match &self.slots {
            Some(slots) => slots.lend(over),
            None if over > ByteSize::ZERO => Err(ByteSize::ZERO),
            None => Ok(()),
        };
        lent.map_err(|lendable| ReloadError::OverBudget {
            needed,
            left: self.spare + lendable,
            budget: self.budget,
        })
    }
}

/// Memory for one transaction, in the budget as long as the transaction runs.
#[derive(Default)]
pub struct Taken(ByteSize);

impl Taken {
    /// Takes `bytes` more of the budget, where there is one, beside the `own` memory that tensors have now.
    ///
    /// # Errors
    /// [`ReloadError::OverBudget`].
    pub fn more(
        &mut self,
        budget: Option<&WeightBudget>,
        weights: Option<&Weights>,
        own: ByteSize,
        bytes: ByteSize,
    ) -> Result<(), ReloadError> {
        let Some(budget) = budget else { return Ok(()) };
        budget.hold(own + self.0 + bytes)?;
        self.0 += bytes;
        heed(weights);
        Ok(())
    }
}

/// What is there now is what the budget has to hold. Nothing can be refused any more: what a device could not take may be too
/// much, which is said.
pub fn settle(budget: Option<&WeightBudget>, weights: Option<&Weights>, own: ByteSize) {
    let Some(budget) = budget else { return };
    if let Err(error) = budget.hold(own) {
        tracing::warn!("over the RAM budget: {error}");
    }
    heed(weights);
}

/// The slots shrink or grow now, not when they are next used.
fn heed(weights: Option<&Weights>) {
    if let Some(Err(error)) = weights.map(|weights| weights.store().poll()) {
        // Whoever computes next meets it, and says so.
        tracing::debug!(%error, "polling the store failed");
    }
}
