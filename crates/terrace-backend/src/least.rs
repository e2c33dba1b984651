//! The fewest slots that graphs can be computed with.

use crate::layout::{Cut, Layout};
use std::collections::BTreeMap;
use terrace_model::{ByteSize, LayerId, PAGE};
use terrace_store::{BlockId, Bundles, Store};

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
