//! A thread's buffers.

use super::{Plan, TILE};
use crate::matmul::Product;

/// A thread's buffers.
#[derive(Clone, Copy)]
pub(super) struct Scratch {
    pub(super) queries: *mut f32,
    pub(super) scores: *mut f32,
    pub(super) sums: *mut f32,
    pub(super) total: *mut f32,
    pub(super) keys: *mut f32,
    pub(super) values: *mut f32,
    /// Queries as blocks of bytes, and room for unpacked keys, where keys are multiplied as bytes.
    pub(super) blocks: *mut f32,
    pub(super) panel: *mut f32,
    /// Room for unpacked values, where these are multiplied as bytes.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "kernels of x86-64 read it"))]
    pub(super) value_panel: *mut f32,
    /// Buffers of the kernels with tiles.
    #[cfg(target_arch = "x86_64")]
    pub(super) amx: super::amx::Scratch,
}

impl Scratch {
    /// Floats of each buffer.
    const fn sizes(plan: &Plan) -> [usize; 10] {
        let (key, value) = (plan.key_floats(), plan.value_floats());
        let (blocks, panel) = match &plan.byte_keys {
            Some(product) => (plan.rows * product.activation_bytes() / 4, Product::scratch_bytes() / 4),
            None => (0, 0),
        };
        #[cfg(target_arch = "x86_64")]
        let value_panel = if plan.byte_values { super::byte_values::scratch_floats(value) } else { 0 };
        #[cfg(not(target_arch = "x86_64"))]
        let value_panel = 0;
        #[cfg(target_arch = "x86_64")]
        let amx = if plan.tiles { super::amx::scratch_floats(plan) } else { 0 };
        #[cfg(not(target_arch = "x86_64"))]
        let amx = 0;
        // Tiles have buffers of their own for these.
        let (rows, positions) = if plan.tiles { (0, 0) } else { (plan.rows, TILE) };
        [
            plan.rows * key,
            rows * TILE,
            plan.rows * value,
            plan.rows * value,
            positions * key,
            positions * value,
            blocks,
            panel,
            value_panel,
            amx,
        ]
    }

    /// Floats of all buffers.
    pub(super) const fn floats(plan: &Plan) -> usize {
        sum(&Self::sizes(plan))
    }

    /// # Safety
    /// `at` is valid for [`Scratch::floats`].
    pub(super) unsafe fn new(plan: &Plan, at: *mut f32) -> Self {
        let mut next = at;
        let [queries, scores, sums, total, keys, values, blocks, panel, value_panel, amx] = Self::sizes(plan)
            .map(|size| {
                let this = next;
                // SAFETY: the caller's contract.
                next = unsafe { next.add(size) };
                this
            });
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller's contract.
        let amx = unsafe { super::amx::Scratch::new(plan, amx) };
        #[cfg(not(target_arch = "x86_64"))]
        let _ = amx;
        Self {
            queries,
            scores,
            sums,
            total,
            keys,
            values,
            blocks,
            panel,
            value_panel,
            #[cfg(target_arch = "x86_64")]
            amx,
        }
    }
}

/// Floats of buffers of these sizes.
pub(super) const fn sum(sizes: &[usize]) -> usize {
    let (mut all, mut i) = (0, 0);
    while i < sizes.len() {
        all += sizes[i];
        i += 1;
    }
    all
}
