//! Pinning: streamed matrices that stay in RAM because the budget can hold them.
//!
//! Every token uses all dense matrices, always in the same order. A cache that is smaller than all
//! of them and evicts the least recently used one never hits. A pinned matrix, in contrast, saves
//! reading one byte per token for each byte of RAM. Pinned matrices are spread evenly over the
//! layers, so that there is an equal amount to compute between any two that are read, and the disk
//! and the cores are busy at the same time.

use crate::model::class::TensorClass;
use crate::model::selection::Selection;
use crate::model::working_set::{slot_size, working_set};
use terrace_model::{ByteSize, ModelFile};

/// Matrices that slots hold in addition to the one in use: those that are being read during its
/// use.
const AHEAD: u64 = 3;

/// Removes matrices from the selection that the budget can keep resident. A larger budget always
/// pins a superset.
pub fn pin(model: &ModelFile, classes: &[TensorClass], selection: &mut Selection, budget: ByteSize) {
    let resident = model.size() - selection.bytes(model);
    let set = working_set(model, classes, selection);
    let whole = |selection: &Selection| -> Vec<usize> {
        selection.tensors.iter().filter(|m| m.experts.is_none()).map(|m| m.tensor).collect()
    };
    let matrices = whole(selection);
    let Some(usual) = usual_size(model, &matrices) else { return };
    // Experts share the slots: room for those of one token is kept.
    let dense: ByteSize = matrices.iter().map(|&t| model.tensors[t].size()).sum();
    let experts = set.token_cycle.saturating_sub(dense);
    let ring = set.least + ByteSize(AHEAD * slot_size(usual).bytes()) + experts;
    let mut room = budget.saturating_sub(resident).saturating_sub(ring);
    let mut pinned = Vec::new();
    for tensor in spread(model, matrices, usual) {
        let size = model.tensors[tensor].size();
        if size > room {
            break;
        }
        room = room - size;
        pinned.push(tensor);
    }
    selection.tensors.retain(|m| m.experts.is_some() || !pinned.contains(&m.tensor));
}

/// Returns the largest length that is at most four times the median: embeddings and outputs can be
/// many times as large as a layer's matrix.
fn usual_size(model: &ModelFile, matrices: &[usize]) -> Option<u64> {
    let mut sizes: Vec<u64> = matrices.iter().map(|&t| model.tensors[t].extent.len).collect();
    sizes.sort_unstable();
    let median = *sizes.get(sizes.len() / 2)?;
    sizes.into_iter().rev().find(|&size| size <= 4 * median)
}

/// Sorts matrices so that any first few are spread evenly over the file: by their positions with
/// bits reversed. Matrices much larger than the others come last, because one that does not fit
/// ends pinning.
fn spread(model: &ModelFile, mut matrices: Vec<usize>, usual: u64) -> Vec<usize> {
    matrices.sort_by_key(|&t| (model.tensors[t].layer(), t));
    let mut keyed: Vec<(bool, u32, usize)> = (0u32..)
        .zip(matrices)
        .map(|(position, t)| (model.tensors[t].extent.len > usual, position.reverse_bits(), t))
        .collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, _, tensor)| tensor).collect()
}
