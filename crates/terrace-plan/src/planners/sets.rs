//! The planner that uses named sets of weights and a budget, without the cost model.

use super::pin::pin;
use crate::error::Need;
use crate::model::class::TensorClass;
use crate::model::selection::{Selection, select};
use crate::model::working_set::{WorkingSet, working_set};
use crate::options::manage::Manage;
use terrace_model::{ByteSize, ModelFile};

/// A set of streamed tensors with the memory that it needs.
pub struct Candidate {
    pub manage: Manage,
    pub selection: Selection,
    pub need: Need,
    /// Bytes of weights that the set names, but the budget can hold.
    pub pinned: ByteSize,
}

impl Candidate {
    fn of(model: &ModelFile, classes: &[TensorClass], manage: Manage) -> Self {
        let selection = select(model, classes, manage);
        let WorkingSet { least, needs, .. } = working_set(model, classes, &selection);
        let resident = model.size() - selection.bytes(model);
        let need = Need { resident, slots: least, what: needs };
        Self { manage, selection, need, pinned: ByteSize::ZERO }
    }

    /// Pins what the budget can hold.
    pub fn pinned(mut self, model: &ModelFile, classes: &[TensorClass], budget: ByteSize) -> Self {
        let named = self.selection.bytes(model);
        pin(model, classes, &mut self.selection, budget);
        self.pinned = named - self.selection.bytes(model);
        self
    }
}

/// Returns the requested set. [`Manage::Auto`] takes the first of these that fits the budget:
/// nothing streamed (mapped if `mapping` allows it), experts, feed-forward weights, all matrices.
/// So a larger budget never streams more. If none fits, it takes the set that needs the least.
pub fn choose(
    model: &ModelFile,
    classes: &[TensorClass],
    asked: Manage,
    mapping: bool,
    budget: ByteSize,
) -> Candidate {
    let candidate = |manage| Candidate::of(model, classes, manage);
    if asked != Manage::Auto {
        return candidate(asked);
    }
    // Mapped weights need no load. If they exceed the memory, reading them on demand, page by page,
    // is far slower than slots.
    let mapped = candidate(Manage::Mapped);
    if mapping && mapped.need.minimum() <= budget {
        return mapped;
    }
    // A set that adds nothing to the one before it fits only if that one did, so it is never
    // chosen.
    let mut nearest = candidate(Manage::None);
    for next in [Manage::Experts, Manage::Ffn, Manage::All] {
        if nearest.need.minimum() <= budget {
            break;
        }
        let next = candidate(next);
        // If none fits, the error names the smallest budget that would do.
        if next.need.minimum() <= budget || next.need.minimum() < nearest.need.minimum() {
            nearest = next;
        }
    }
    nearest
}
