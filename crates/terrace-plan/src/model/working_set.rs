//! The slots that streamed weights need: at the least, and for all of them.

use crate::model::class::TensorClass;
use crate::model::experts::groups;
use crate::model::selection::Selection;
use terrace_model::{ByteSize, ModelFile, PAGE, TensorInfo};

/// Returns the most bytes that the slot of a block of `len` bytes takes. Direct reads read whole
/// pages, so both ends of the block may need one more.
pub const fn slot_size(len: u64) -> ByteSize {
    ByteSize(len.div_ceil(PAGE) * PAGE + PAGE)
}

/// The slots that a selection needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkingSet {
    /// Bytes of slots that hold everything at once.
    pub whole: ByteSize,
    /// The fewest bytes that work.
    pub least: ByteSize,
    /// The weights that determine `least`; empty if nothing is streamed.
    pub needs: String,
    /// Bytes of streamed weights that one token uses.
    pub token_cycle: ByteSize,
}

/// Computes the slots that a selection needs.
///
/// The backend computes a node from blocks in waves, so one block at a time would do. But plans
/// leave room for as many experts of one tensor as a token uses, because otherwise decoding would
/// wait for each read by itself. The least is that plus the largest matrix: a run of nodes may hold
/// a matrix while its experts come and go. Tables that are only read by row never take a slot.
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
            // Read by row, without a slot.
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

/// Returns whether a tensor is only looked up by row: embeddings are, unless the model has no other
/// output matrix and multiplies by them, too.
pub fn is_row_table(tensor: &TensorInfo, class: TensorClass, has_output: bool) -> bool {
    class == TensorClass::TokenEmbedding && (has_output || tensor.name != "token_embd.weight")
}
