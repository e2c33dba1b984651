//! Offers streamed matrices to devices that compute large batches, and withholds experts in RAM that lanes
//! compute.
//!
//! ggml's scheduler gives an operation to a device that asks for large batches only if its weight is
//! host memory, and copies the weight there: from its address if it is host memory, otherwise by the
//! buffer's `get_tensor`. Streamed matrices have no bytes at their addresses. So they are host memory
//! exactly where the scheduler places an operation ([`terrace_ggml::pin::scheduler`]). Experts in RAM, and
//! their biases, are not host memory there if lanes are to compute the batch. Any other question is answered
//! with what is true.

use super::places::Places;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_ggml::devices::BufferTypeHandle;
use terrace_ggml::pin::scheduler::{self, Weights};
use terrace_ggml::{Op, Tensor};

/// Whether streamed matrices are offered in this process: by runs, which report reads that fail in
/// `get_tensor`, and not by the plug-in, whose host would not notice them.
static OFFERS: AtomicBool = AtomicBool::new(false);

/// Offers streamed matrices from now on.
pub fn begin() {
    OFFERS.store(true, Ordering::Relaxed);
}

/// Whether streamed weights are offered now.
pub fn is_offered() -> bool {
    scheduler::places_operation(Weights::Streamed) && OFFERS.load(Ordering::Relaxed)
}

/// Whether experts in RAM are withheld now.
pub fn is_withheld() -> bool {
    scheduler::places_operation(Weights::InRam)
}

/// Notes that the device is asked for a buffer type.
pub fn asked_for_buffers(ty: BufferTypeHandle, places: Option<&Places>) {
    scheduler::asked_for_buffers(places.and_then(|places| match ty {
        ty if ty == places.managed => Some(Weights::Streamed),
        ty if ty == places.resident || ty == places.mapped => Some(Weights::InRam),
        _ => None,
    }));
}

/// Notes that the device is asked for an operation.
pub fn asked_for(op: Tensor<'_>, places: Option<&Places>) {
    scheduler::asked_for_operation(|weights| match weights {
        Weights::Streamed => {
            op.op() == Op::MUL_MAT
                && is_managed(op.src(0).and_then(|weight| weight.storage().buffer_type()), places)
        }
        Weights::InRam => places.is_some_and(|places| are_for_lanes(op, *places)),
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
