//! The arithmetic of an expert node: converting activations, and a thread's share of a wave.
//!
//! Rounding is stock's: activations are converted once with ggml's `from_float`, and each output element is one
//! `vec_dot`, or ggml's blocked kernel where ggml itself would take it for that expert.

use crate::moe::single::{ExpertNode, Item};
use crate::routing::Routing;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_ggml::cpu::Kernels;
use terrace_ggml::cpu::blocked::{BlockedExpert, ThreadShare};
use terrace_ggml::{DataType, Tensor};

/// Weight rows per unit of work: enough to amortise the counter, few enough to spread over the threads.
const ROWS_PER_TASK: usize = 32;

/// Converts this thread's part of a node's src1 to the activation type, rows without gaps, as ggml does.
pub fn convert(kernels: &Kernels, src1: Tensor<'_>, activations: *mut c_void, share: ThreadShare) {
    let [n, per_token, tokens, _] = src1.ne().map(|d| d.unsigned_abs() as usize);
    let [_, stride_row, stride_token, _] = src1.nb();
    let row_bytes = kernels.activation_bytes(n);
    let block = kernels.activation_block();
    let blocks = n / block;
    // Split each row by blocks: with one token that is all the parallelism there is. Quantisation is per block, so
    // the split does not change a bit.
    let (b0, b1) = (blocks * share.ith / share.nth, blocks * (share.ith + 1) / share.nth);
    if b0 == b1 {
        return;
    }
    let already = src1.ty() == kernels.activation_type();
    for token in 0..tokens {
        for slot in 0..per_token {
            // SAFETY: src1 is allocated and computed (it precedes this node); indices are within its dimensions; the
            // target was reserved for all rows when the lane was prepared, and threads write disjoint blocks.
            unsafe {
                let row = src1.data().cast::<u8>().add(slot * stride_row + token * stride_token);
                let target = activations.cast::<u8>().add((slot + token * per_token) * row_bytes);
                let skip = kernels.activation_bytes(b0 * block);
                if already {
                    let len = kernels.activation_bytes((b1 - b0) * block);
                    std::ptr::copy_nonoverlapping(row.add(skip), target.add(skip), len);
                } else {
                    let from = row.cast::<f32>().add(b0 * block);
                    kernels.convert(from, target.add(skip).cast(), (b1 - b0) * block);
                }
            }
        }
    }
}

/// This thread's part of a wave.
#[expect(clippy::too_many_arguments, reason = "what a thread needs of the wave, each used once")]
pub fn compute(
    node: &ExpertNode,
    dst: Tensor<'_>,
    routing: &Routing,
    items: &[Item],
    next_task: &AtomicUsize,
    activations: *mut c_void,
    blocked: *mut c_void,
    share: ThreadShare,
) {
    for item in items.iter().filter(|item| item.blocked) {
        let rows = routing.rows(item.touched);
        // SAFETY: the node is a MUL_MAT_ID whose operands are allocated and computed; the expert is leased until the
        // end of the node; activations are complete (barrier); scratch was reserved for all threads; every thread
        // comes by here for this item.
        unsafe { BlockedExpert::compute(dst, item.weights, rows, activations, blocked, share) };
    }
    let src0 = dst.src(0).expect("MUL_MAT_ID has weights");
    let n_rows = src0.ne()[1].unsigned_abs() as usize;
    let tasks_per_item = n_rows.div_ceil(ROWS_PER_TASK);
    loop {
        let task = next_task.fetch_add(1, Ordering::Relaxed);
        let Some(item) = items.get(task / tasks_per_item) else { return };
        if item.blocked {
            continue;
        }
        let first = task % tasks_per_item * ROWS_PER_TASK;
        dots(
            node,
            dst,
            item.weights,
            routing.rows(item.touched),
            activations,
            first..n_rows.min(first + ROWS_PER_TASK),
        );
    }
}

/// Weight rows `range` of one expert against all its activation rows.
fn dots(
    node: &ExpertNode,
    dst: Tensor<'_>,
    weights: *const c_void,
    rows: &[[i32; 2]],
    activations: *const c_void,
    range: std::ops::Range<usize>,
) {
    let src0 = dst.src(0).expect("MUL_MAT_ID has weights");
    let src1 = dst.src(1).expect("MUL_MAT_ID has activations");
    let n = src0.ne()[0];
    let length = c_int::try_from(n).expect("a row's length");
    let weight_stride = src0.nb()[1];
    let per_token = src1.ne()[1].unsigned_abs() as usize;
    let row_bytes = node.kernels.activation_bytes(n.unsigned_abs() as usize);
    let [_, dst_slot, dst_token, _] = dst.nb();
    for &[slot, token] in rows {
        let (slot, token) = (slot.unsigned_abs() as usize, token.unsigned_abs() as usize);
        // SAFETY: (slot, token) comes from ids, whose dimensions are dst's; activations hold all rows of src1; the
        // expert holds ne[1] rows of `weight_stride` bytes; threads write disjoint ranges of dst.
        unsafe {
            let activation = activations.cast::<u8>().add((slot % per_token + token * per_token) * row_bytes);
            let out = dst.data().cast::<u8>().add(slot * dst_slot + token * dst_token).cast::<f32>();
            for row in range.clone() {
                let weight = weights.cast::<u8>().add(row * weight_stride);
                *out.add(row) = node.kernels.dot(length, weight.cast(), activation.cast());
            }
        }
    }
}

/// Bytes of converted activations at a MUL_MAT_ID node.
pub fn activation_bytes(node: Tensor<'_>, kernels: &Kernels) -> usize {
    let Some(src1) = node.src(1) else { return 0 };
    let [n, per_token, tokens, _] = src1.ne().map(|d| d.unsigned_abs() as usize);
    kernels.activation_bytes(n) * per_token * tokens
}

/// Whether the node's activations are of a type that this lane converts.
pub fn convertible(node: Tensor<'_>, kernels: &Kernels) -> bool {
    node.src(1).is_some_and(|src1| src1.ty() == DataType::F32 || src1.ty() == kernels.activation_type())
}
