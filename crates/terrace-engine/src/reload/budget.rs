//! The share of the RAM budget that replaced tensors take.

use super::error::ReloadError;
use crate::pressure;
use terrace_backend::{Weights, least_slots};
use terrace_model::ByteSize;
use terrace_plan::Plan;
use terrace_store::BudgetHandle;

/// The part of a run's budget for weights that reloads may take.
#[derive(Debug)]
pub struct WeightBudget {
    budget: ByteSize,
    /// Bytes of the budget that neither resident weights nor slots use.
    spare: ByteSize,
    /// Slots can lend some; `None` means there are no slots.
    slots: Option<BudgetHandle>,
    /// The least that the plan leaves for slots.
    least: ByteSize,
    /// Memory for something beside the weights.
    beside: ByteSize,
    /// True if the budget is what memory leaves; otherwise it is for weights alone.
    auto: bool,
}

impl WeightBudget {
    /// Makes the budget of a planned run. `None` if everything fits and no budget was set:
    /// available memory counts instead.
    pub fn of(plan: &Plan, weights: &Weights) -> Option<Self> {
        let streams = plan.slots > ByteSize::ZERO;
        if plan.auto_budget && !streams {
            return None;
        }
        let taken = plan.resident + plan.mapped + plan.slots;
        let slots = streams.then(|| {
            let store = weights.store();
            store.budget_handle(least_slots(plan.least_slots(), &weights.layout(), &store))
        });
        Some(Self {
            budget: plan.budget,
            spare: plan.budget.saturating_sub(taken),
            slots,
            least: plan.least_slots(),
            beside: ByteSize::ZERO,
            auto: plan.auto_budget,
        })
    }

    /// The budget of the slots; `None` if there are none.
    pub const fn slots(&self) -> Option<&BudgetHandle> {
        self.slots.as_ref()
    }

    /// Has the slots never become fewer than a graph needs of the blocks as they are now: tensors
    /// of other types have other blocks.
    fn blocks_changed(&self, weights: &Weights) {
        if self.slots.is_some() {
            let store = weights.store();
            store.budget_handle(least_slots(self.least, &weights.layout(), &store));
        }
    }

    /// Part of the budget that something beside the weights may take, if replaced tensors take `own`.
    fn lendable(&self, own: ByteSize) -> ByteSize {
        let Some(slots) = self.slots.as_ref().filter(|_| self.auto) else { return ByteSize::ZERO };
        (self.spare + slots.most().saturating_sub(slots.least())).saturating_sub(own)
    }

    /// Sets aside `needed` bytes of the budget for replaced tensors.
    ///
    /// # Errors
    /// [`ReloadError::OverBudget`]; nothing has changed then.
    fn hold(&self, needed: ByteSize) -> Result<(), ReloadError> {
        let needed = needed + self.beside;
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

/// Memory that one transaction has taken from the budget.
#[derive(Default)]
pub struct Taken(ByteSize);

impl Taken {
    /// Takes `bytes` more from the budget, if there is one, beside the `own` memory that replaced
    /// tensors have now.
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

/// Sets the budget's share to what replaced tensors actually take. Nothing can be refused any more:
/// if a device had no room for a tensor, main memory may exceed the budget, which is a warning.
pub fn settle(budget: Option<&WeightBudget>, weights: Option<&Weights>, own: ByteSize) {
    let Some(budget) = budget else { return };
    if let Some(weights) = weights {
        budget.blocks_changed(weights);
    }
    if let Err(error) = budget.hold(own) {
        tracing::warn!("over the RAM budget: {error}");
    }
    heed(weights);
}

/// Sets aside up to `bytes` of an automatic budget for something beside the weights, instead of what was
/// set aside before. Returns how many.
pub fn lend_beside(
    budget: Option<&mut WeightBudget>,
    weights: Option<&Weights>,
    own: ByteSize,
    bytes: ByteSize,
) -> ByteSize {
    let Some(budget) = budget else { return ByteSize::ZERO };
    let lent = bytes.min(budget.lendable(own));
    let before = std::mem::replace(&mut budget.beside, lent);
    if budget.hold(own).is_err() {
        budget.beside = before;
        return ByteSize::ZERO;
    }
    heed(weights);
    lent
}

/// Lets the slots shrink or grow now, not when they are next used.
fn heed(weights: Option<&Weights>) {
    if let Some(weights) = weights {
        pressure::heed(&mut weights.store());
    }
}
