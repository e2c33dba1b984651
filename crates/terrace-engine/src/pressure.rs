//! Adapts the budget of the slots to available memory.

use std::path::Path;
use std::sync::Arc;
use terrace_backend::{Weights, least_slots};
use terrace_host::pressure::{ReadingsError, Watcher, watch};
use terrace_model::ByteSize;
use terrace_plan::Plan;

/// Lets the slots' budget follow available memory; `None` if there are no slots. `simulated` is a
/// file of readings to use instead.
///
/// # Errors
/// See [`watch`].
pub fn follow(
    weights: &Arc<Weights>,
    plan: &Plan,
    simulated: Option<&Path>,
) -> Result<Option<Watcher>, ReadingsError> {
    if plan.slots == ByteSize::ZERO {
        return Ok(None);
    }
    let budget = {
        let store = weights.store();
        store.budget_handle(least_slots(plan.least_slots(), &weights.layout(), &store))
    };
    let weights = Arc::downgrade(weights);
    let settle = move || {
        let Some(weights) = weights.upgrade() else { return };
        if let Some(mut store) = weights.idle_store()
            && let Err(error) = store.poll()
        {
            // The next computation meets the error and reports it.
            tracing::debug!(%error, "polling the store failed");
        };
    };
    watch(budget, settle, simulated)
}
