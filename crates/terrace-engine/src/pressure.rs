//! The budget of the slots, and the memory that there is.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use terrace_backend::{Cut, Layout, Weights};
use terrace_host::pressure::{ReadingsError, Watcher, watch};
use terrace_model::{ByteSize, LayerId, PAGE};
use terrace_plan::Plan;
use terrace_store::{BlockId, Bundles, Store};

/// What the plan found to be the least, and, where blocks of experts are computed as a whole, what that takes: which way a
/// graph is computed is not decided again for every one.
pub fn least_slots(plan: &Plan, layout: &Layout, store: &Store) -> ByteSize {
    let least = plan.minimum.saturating_sub(plan.resident.saturating_sub(plan.pinned));
    let mut layers: BTreeMap<Option<LayerId>, Vec<BlockId>> = BTreeMap::new();
    for tensor in layout.tensors().iter().filter(|tensor| tensor.cut != Cut::Whole) {
        layers.entry(tensor.layer).or_default().push(tensor.block(0));
    }
    let wholes = layers.into_values().map(|blocks| {
        // Direct reads take the pages around a block, so that slots of equal blocks may differ by one.
        let pages = 2 * PAGE * blocks.len() as u64;
        Bundles::least(store, blocks.into_iter()) + ByteSize(pages)
    });
    let whole = wholes.max().unwrap_or_default();
    // Matrices have half of the slots of a graph that has experts, too.
    let matrices = layout.tensors().iter().any(|tensor| tensor.cut == Cut::Whole);
    let whole = if matrices { whole + whole } else { whole };
    if whole <= store.capacity() { least.max(whole) } else { least }
}

/// Has the slots' budget follow the memory there is; without slots there is nothing to adapt. `simulated`: a file with
/// readings.
///
/// # Errors
/// As [`watch`].
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
        store.budget_handle(least_slots(plan, &weights.layout(), &store))
    };
    let weights = Arc::downgrade(weights);
    let settle = move || {
        let Some(weights) = weights.upgrade() else { return };
        if let Some(mut store) = weights.idle_store()
            && let Err(error) = store.poll()
        {
            // Whoever computes next meets it, and says so.
            tracing::debug!(%error, "polling the store failed");
        };
    };
    watch(budget, settle, simulated)
}
