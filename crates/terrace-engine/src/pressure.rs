//! Adapts the budget of the slots to available memory.

use std::path::Path;
use std::sync::Arc;
use terrace_backend::{Weights, least_slots};
use terrace_host::pressure::{ReadingsError, Watcher, watch};
use terrace_model::ByteSize;
use terrace_plan::Plan;
use terrace_store::Store;

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
        if let Some(weights) = weights.upgrade() {
            heed_if_idle(&weights);
        }
    };
    watch(budget, settle, simulated)
}

/// Lets the slots shrink or grow now if no graph is running; otherwise the graph does that.
pub fn heed_if_idle(weights: &Weights) {
    if let Some(mut store) = weights.idle_store() {
        heed(&mut store);
    }
}

/// Lets the slots shrink or grow now, not when they are next used.
pub fn heed(store: &mut Store) {
    if let Err(error) = store.poll() {
        // The next computation meets the error and reports it.
        tracing::debug!(%error, "polling the store failed");
    }
}
