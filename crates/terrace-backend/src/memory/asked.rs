//! Notes what ggml's scheduler asks the device for, which tells when it places an operation on weights of
//! Terrace's ([`offer`](super::offer)).

use super::places::Places;
use terrace_ggml::devices::BufferTypeHandle;
use terrace_ggml::pin::scheduler::{self, Weights};
use terrace_ggml::{Op, Tensor};

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

/// Returns true if an operation on weights in RAM is part of an MoE block that Terrace is to compute in this batch.
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
