//! Adapts the budget of the slots to available memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use terrace_backend::{Cut, Layout, Weights};
use terrace_host::pressure::{ReadingsError, Watcher, watch};
use terrace_model::{ByteSize, LayerId, PAGE};
use terrace_plan::Plan;
use terrace_store::{BlockId, Bundles, Store};

/// The slots of the plan's minimum.
pub fn planned_least(plan: &Plan) -> ByteSize {
    plan.minimum.saturating_sub(plan.resident.saturating_sub(plan.pinned))
}

/// The smallest budget for slots, as blocks are now: at least the plan's (`least`) and, if MoE
/// blocks are computed as a whole, what that takes, because the way a graph is computed is not
/// decided again for each graph.
pub fn least_slots(least: ByteSize, layout: &Layout, store: &Store) -> ByteSize {
    let mut layers: BTreeMap<Option<LayerId>, Vec<BlockId>> = BTreeMap::new();
    for tensor in layout.tensors().iter().filter(|tensor| tensor.cut != Cut::Whole) {
        layers.entry(tensor.layer).or_default().push(tensor.block(0));
    }
    let wholes = layers.into_values().map(|blocks| {
        // Direct reads take the pages around a block, so slots of equal blocks may differ by a
        // page.
        let pages = 2 * PAGE * blocks.len() as u64;
        Bundles::least(store, blocks.into_iter()) + ByteSize(pages)
    });
    let whole = wholes.max().unwrap_or_default();
    // In a graph that also has experts, matrices have half of the slots.
    let matrices = layout.tensors().iter().any(|tensor| tensor.cut == Cut::Whole);
    let whole = if matrices { whole + whole } else { whole };
    if whole <= store.most_capacity() { least.max(whole) } else { least }
}

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
        store.budget_handle(least_slots(planned_least(plan), &weights.layout(), &store))
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
