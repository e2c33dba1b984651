//! What must be in slots at once, and what all of it would take.

use crate::model::class::TensorClass;
use crate::model::experts::groups;
use crate::model::selection::Selection;
use terrace_model::{ByteSize, ModelFile, PAGE, TensorInfo};

/// Slot bytes that a block of `len` bytes takes at most: direct reads take the pages around it, so both of its
/// ends may need one more.
pub const fn slot_size(len: u64) -> ByteSize {
    ByteSize(len.div_ceil(PAGE) * PAGE + PAGE)
}

/// The slots that a selection needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkingSet {
    /// Enough for everything at once.
    pub whole: ByteSize,
    /// The least that works.
    pub least: ByteSize,
    /// What needs the least; empty if nothing is managed.
    pub needs: String,
    /// Bytes of managed weights that one token touches.
    pub token_cycle: ByteSize,
}

/// The backend computes a node from blocks in waves, so one block at a time would do; but experts are planned with
/// room for as many of one tensor as a token uses, or decoding would wait for each read alone. The least is that plus
/// the largest matrix: a run of nodes may hold one while its experts come and go. Tables that are only read by row never enter a slot.
pub fn working_set(model: &ModelFile, classes: &[TensorClass], selection: &Selection) -> WorkingSet {
    let mut set = WorkingSet {
        whole: ByteSize::ZERO,
        least: ByteSize::ZERO,
        needs: String::new(),
        token_cycle: ByteSize::ZERO,
    };
    let (mut matrices, mut experts) = (Least::default(), Least::default());
    let has_output = model.tensor("output.weight").is_some();
    let mut managed_experts = vec![false; model.tensors.len()];
    for managed in &selection.tensors {
        let tensor = &model.tensors[managed.tensor];
        if let Some(experts) = managed.experts {
            managed_experts[managed.tensor] = true;
            let slice = tensor.extent.len / u64::from(experts);
            set.whole += ByteSize(slot_size(slice).bytes() * u64::from(experts));
        } else if is_row_table(tensor, classes[managed.tensor], has_output) {
            // Read by row, beside the slots.
        } else {
            let size = slot_size(tensor.extent.len);
            set.whole += size;
            set.token_cycle += tensor.size();
            matrices.at_least(size, || format!("tensor `{}`", tensor.name));
        }
    }
    for group in groups(model, classes) {
        let top_k = group.top_k(model);
        for &role in group.roles.iter().filter(|&&role| managed_experts[role]) {
            let tensor = &model.tensors[role];
            let slice = tensor.extent.len / u64::from(group.experts);
            set.token_cycle += ByteSize(slice * u64::from(top_k));
            let size = ByteSize(slot_size(slice).bytes() * u64::from(top_k));
            experts.at_least(size, || format!("{top_k} experts of `{}`", tensor.name));
        }
    }
    set.least = matrices.size + experts.size;
    set.needs = [matrices.needs, experts.needs]
        .into_iter()
        .filter(|n| !n.is_empty())
        .collect::<Vec<_>>()
        .join(" and ");
    set
}

/// The largest need of one kind so far.
#[derive(Default)]
struct Least {
    size: ByteSize,
    needs: String,
}

impl Least {
    fn at_least(&mut self, size: ByteSize, needs: impl FnOnce() -> String) {
        if size > self.size {
            *self = Self { size, needs: needs() };
        }
    }
}

/// Embeddings are looked up by row, unless the model has no other output matrix and multiplies by them too.
pub fn is_row_table(tensor: &TensorInfo, class: TensorClass, has_output: bool) -> bool {
    class == TensorClass::TokenEmbedding && (has_output || tensor.name != "token_embd.weight")
}
