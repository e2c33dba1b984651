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
use terrace_kernels::matmul::{Column, Product};

/// Columns that are multiplied with a panel of weights that was unpacked once.
const COLUMNS: usize = 256;

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
    pub by: By,
}

/// The kernel that multiplies an expert.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Dot products.
    Dots,
    /// ggml's blocked kernel.
    Blocked,
    /// Terrace's tiles.
    Tiles,
}

/// The operands of tiles.
#[derive(Clone, Copy)]
pub struct Tiled<'a> {
    pub tile: &'a Product,
    /// All quantised rows of activations.
    pub input: *const c_void,
    /// This thread's scratch.
    pub panel: *mut u8,
}

/// Computes this thread's part of a wave.
#[expect(clippy::too_many_arguments, reason = "what a thread needs of the wave, each used once")]
pub fn compute(
    kernels: &Kernels,
    tiled: Option<Tiled<'_>>,
    dst: Tensor<'_>,
    routing: &Routing,
    items: &[Item],
    next_task: &AtomicUsize,
    activations: *mut c_void,
    blocked: *mut c_void,
    share: ThreadShare,
) {
    for item in items.iter().filter(|item| item.by == By::Blocked) {
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
        if item.by == By::Blocked {
            continue;
        }
        let first = task % tasks_per_item * ROWS_PER_TASK;
        let (rows, range) = (routing.rows(item.touched), first..n_rows.min(first + ROWS_PER_TASK));
        match tiled.filter(|_| item.by == By::Tiles) {
            Some(tiled) => multiply_tiled(tiled, dst, item.weights, rows, range),
            None => multiply(kernels, dst, item.weights, rows, activations, range),
        }
    }
}

/// Multiplies weight rows `range` of one expert with all its activation rows, by tiles.
fn multiply_tiled(
    Tiled { tile, input, panel }: Tiled<'_>,
    dst: Tensor<'_>,
    weights: *const c_void,
    rows: &[[i32; 2]],
    range: std::ops::Range<usize>,
) {
    let stride = dst.src(0).expect("MUL_MAT_ID has weights").nb()[1];
    let per_token = dst.src(1).expect("MUL_MAT_ID has activations").ne()[1].unsigned_abs() as usize;
    let [_, dst_slot, dst_token, _] = dst.nb();
    let mut columns = [Column { input: std::ptr::null(), out: std::ptr::null_mut() }; COLUMNS];
    for rows in rows.chunks(COLUMNS) {
        for (column, &[slot, token]) in columns.iter_mut().zip(rows) {
            let (slot, token) = (slot.unsigned_abs() as usize, token.unsigned_abs() as usize);
            // SAFETY: as in `multiply`; the input holds all rows of src1, quantised.
            unsafe {
                let from = (slot % per_token + token * per_token) * tile.activation_bytes();
                let out = dst.data().cast::<u8>().add(slot * dst_slot + token * dst_token).cast();
                *column = Column { input: input.cast::<u8>().add(from), out };
            }
        }
        // SAFETY: as in `multiply`; the panel is this thread's.
        unsafe { tile.run(weights.cast(), stride, range.clone(), &columns[..rows.len()], panel) };
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
