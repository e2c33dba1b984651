//! A thread's share of a wave.
//!
//! Rounding is stock's: activations were converted with ggml's `from_float`, and each output
//! element is one `vec_dot`, or comes from ggml's blocked kernel where ggml itself would use it for
//! that expert.

use crate::kernels::dots;
use crate::routing::Routing;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use terrace_ggml::Tensor;
use terrace_ggml::cpu::Kernels;
use terrace_ggml::cpu::blocked::{BlockedExpert, ThreadShare};

/// Weight rows per unit of work: enough to amortise the counter, few enough to spread over the
/// threads.
const ROWS_PER_TASK: usize = 32;

/// An expert whose bytes have arrived.
#[derive(Clone, Copy)]
pub struct Item {
    /// Index into the routing's touched experts.
    pub touched: usize,
    /// Its matrix.
    pub weights: *const c_void,
    /// Whether ggml's blocked kernel takes it.
    pub blocked: bool,
}

/// Computes this thread's part of a wave.
#[expect(clippy::too_many_arguments, reason = "what a thread needs of the wave, each used once")]
pub fn compute(
    kernels: &Kernels,
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
        // SAFETY: the node is a MUL_MAT_ID whose operands are allocated and computed; the expert is
        // leased until the end of the node; activations are complete (barrier); scratch was
        // reserved for all threads; every thread comes by here for this item.
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
        multiply(
            kernels,
            dst,
            item.weights,
            routing.rows(item.touched),
            activations,
            first..n_rows.min(first + ROWS_PER_TASK),
        );
    }
}

/// Multiplies weight rows `range` of one expert with all its activation rows.
fn multiply(
    kernels: &Kernels,
    dst: Tensor<'_>,
    weights: *const c_void,
    rows: &[[i32; 2]],
    activations: *const c_void,
    range: std::ops::Range<usize>,
) {
    let src0 = dst.src(0).expect("MUL_MAT_ID has weights");
    let src1 = dst.src(1).expect("MUL_MAT_ID has activations");
    let n = src0.ne()[0].unsigned_abs() as usize;
    let weight_stride = src0.nb()[1];
    let per_token = src1.ne()[1].unsigned_abs() as usize;
    let row_bytes = kernels.activation_bytes(n);
    let [_, dst_slot, dst_token, _] = dst.nb();
    for &[slot, token] in rows {
        let (slot, token) = (slot.unsigned_abs() as usize, token.unsigned_abs() as usize);
        // SAFETY: (slot, token) comes from ids, whose dimensions are dst's; activations hold all
        // rows of src1; the expert holds ne[1] rows of `weight_stride` bytes; threads write
        // disjoint ranges of dst.
        unsafe {
            let activation = activations.cast::<u8>().add((slot % per_token + token * per_token) * row_bytes);
            let out = dst.data().cast::<u8>().add(slot * dst_slot + token * dst_token).cast::<f32>();
            dots(kernels, weights, weight_stride, range.clone(), n, activation.cast(), out);
        }
    }
}
