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

use crate::memory::places::Places;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_ggml::devices::BufferTypeHandle;
use terrace_ggml::{Op, Tensor};

/// The last questions on this thread.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Asked {
    /// Anything else.
    #[default]
    Other,
    /// Whether the device computes with the buffer type of streamed weights.
    Buffers,
    /// After that, whether it computes a product with one of them.
    Product,
    /// Whether the device computes with the buffer type of weights in RAM.
    InRam,
    /// After that, whether it computes a part of an MoE block that is Terrace's in this batch.
    Experts,
}

/// Whether streamed matrices are offered in this process: by runs, which report reads that fail in
/// `get_tensor`, and not by the plug-in, whose host would not notice them.
static OFFERS: AtomicBool = AtomicBool::new(false);

thread_local! {
    static ASKED: Cell<Asked> = const { Cell::new(Asked::Other) };
}

/// Offers streamed matrices from now on.
pub fn begin() {
    OFFERS.store(true, Ordering::Relaxed);
}

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

/// Notes that a graph is computed.
pub fn computing() {
    ASKED.set(Asked::Other);
}

/// Whether experts in RAM are withheld now. The next question is another one.
pub fn is_withheld() -> bool {
    let withheld = ASKED.get() == Asked::Experts;
    if withheld {
        ASKED.set(Asked::Other);
    }
    withheld
}

/// Whether streamed weights are offered now. The next question is another one.
pub fn take() -> bool {
    ASKED.take() == Asked::Product && OFFERS.load(Ordering::Relaxed)
}

fn is_managed(ty: Option<BufferTypeHandle>, places: Option<&Places>) -> bool {
    places.is_some_and(|places| ty == Some(places.managed))
}
