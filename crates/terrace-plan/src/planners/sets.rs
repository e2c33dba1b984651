//! The planner that knows sets of weights and a budget, and nothing of speed.

use super::pin::pin;
use crate::error::Need;
use crate::model::class::TensorClass;
use crate::model::selection::{Selection, select};
use crate::model::working_set::{WorkingSet, working_set};
use crate::wishes::manage::Manage;
use terrace_model::{ByteSize, ModelFile};

/// A set of streamed tensors with what it needs.
pub struct Candidate {
    pub manage: Manage,
    pub selection: Selection,
    pub need: Need,
    /// Weights that the set names and the budget holds all the same.
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

    /// The same with what the budget can hold pinned.
    pub fn pinned(mut self, model: &ModelFile, classes: &[TensorClass], budget: ByteSize) -> Self {
        let named = self.selection.bytes(model);
        pin(model, classes, &mut self.selection, budget);
        self.pinned = named - self.selection.bytes(model);
        self
    }
}

/// The set that is asked for. [`Manage::Auto`] takes the first of these that the budget allows: nothing streamed (everything
/// fits; mapped where `mapping` allows it), experts, feed-forward weights, all matrices. More budget thus never streams more.
/// Where none fits, it is the one that needs least.
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
    // Mapped weights are where they are at once; past the memory there is, reading on demand, page by page, loses to
    // slots by far.
    let mapped = candidate(Manage::Mapped);
    if mapping && mapped.need.minimum() <= budget {
        return mapped;
    }
    // A set that adds nothing to the one before it only fits where that did, and so is never found.
    let mut nearest = candidate(Manage::None);
    for next in [Manage::Experts, Manage::Ffn, Manage::All] {
        if nearest.need.minimum() <= budget {
            break;
        }
        let next = candidate(next);
        // Where none fits, the error names the smallest budget that would do.
        if next.need.minimum() <= budget || next.need.minimum() < nearest.need.minimum() {
            nearest = next;
        }
    }
    nearest
}
