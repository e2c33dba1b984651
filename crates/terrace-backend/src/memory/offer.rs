//! Offers streamed matrices to devices that compute large batches, and withholds experts in RAM that lanes
//! compute.
//!
//! ggml's scheduler gives an operation to a device that asks for large batches only if its weight is
//! host memory, and copies the weight there: from its address if it is host memory, otherwise by the
//! buffer's `get_tensor`. Streamed matrices have no bytes at their addresses. So they are host memory
//! exactly where the scheduler decides (`ggml_backend_sched_backend_id_from_cur`): it asks the
//! weight's device for the buffer type and then for the operation, and next whether the buffer is on
//! the host. Experts in RAM, and their biases, are not host memory there if lanes are to compute the batch.
//! Any other sequence of questions, on this thread, is answered with what is true.

use super::asked::{ASKED, Asked};
use super::places::Places;
use terrace_ggml::devices::BufferTypeHandle;
use terrace_ggml::{Op, Tensor};

/// Notes that the device is asked for a buffer type.
pub fn asked_for_buffers(ty: BufferTypeHandle, places: Option<&Places>) {
    let asked = |places: &Places| match ty {
        ty if ty == places.managed => Asked::Buffers,
        ty if ty == places.resident || ty == places.mapped => Asked::InRam,
        _ => Asked::Other,
    };
    ASKED.set(places.map_or(Asked::Other, asked));
}

/// Notes that the device is asked for an operation.
pub fn asked_for(op: Tensor<'_>, places: Option<&Places>) {
    ASKED.set(match ASKED.get() {
        Asked::Buffers
            if op.op() == Op::MUL_MAT
                && is_managed(op.src(0).and_then(|weight| weight.storage().buffer_type()), places) =>
        {
            Asked::Product
        }
        Asked::InRam if places.is_some_and(|places| are_for_lanes(op, *places)) => Asked::Experts,
        _ => Asked::Other,
    });
}

/// Whether an operation on weights in RAM is part of an MoE block that Terrace is to compute in this batch.
/// Biases stay with their experts, because the block would fall to pieces.
fn are_for_lanes(op: Tensor<'_>, places: Places) -> bool {
    let weight = match op.op() {
        Op::MUL_MAT_ID => op.src(0),
        Op::ADD_ID => {
            let experts = op.src(0).filter(|product| product.op() == Op::MUL_MAT_ID);
            let experts = experts.and_then(|product| product.src(0));
            if experts.is_some_and(|experts| places.managed_buffer(experts).is_some()) {
                return true;
            }
            op.src(1)
        }
        _ => None,
    };
    let Some(weight) = weight.filter(|&weight| places.is_there(weight)) else { return false };
    places.model_of(weight).is_some_and(|weights| weights.lanes_compute(&weight.name()))
}

fn is_managed(ty: Option<BufferTypeHandle>, places: Option<&Places>) -> bool {
    places.is_some_and(|places| ty == Some(places.managed))
}
