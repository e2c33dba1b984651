//! ggml's blocked kernel for one expert of a MUL_MAT_ID, which ggml prefers to dot products from 8
//! rows on.

use crate::pin::abi;
use crate::tensor::{DataType, Tensor};
use llama_cpp_sys_2 as sys;
use std::ffi::{c_int, c_void};

/// One thread's part of a blocked multiplication.
#[derive(Clone, Copy, Debug)]
pub struct ThreadShare {
    /// This thread.
    pub ith: usize,
    /// All threads.
    pub nth: usize,
}

/// Number of weight rows that the kernel computes together (`TILED_MMID_GROUP` in
/// `ggml-cpu/tiled/tiled.cpp`). Shares consist of whole groups.
pub const BLOCKED_GROUP: usize = 64;

/// ggml's blocked kernel for one expert, on the graph's tensors.
pub struct BlockedExpert {
    weights: sys::ggml_tensor,
    node: sys::ggml_tensor,
}

impl BlockedExpert {
    /// Scratch in bytes that the kernel needs for `threads` threads at this MUL_MAT_ID node; 0 if
    /// it does not apply.
    pub fn scratch_bytes(node: Tensor<'_>, threads: usize) -> usize {
        // SAFETY: `node` is a live MUL_MAT_ID node; the function reads types only.
        unsafe { abi::ggml_tiled_wdata_size(c_int::try_from(threads).unwrap_or(1), node.as_ptr()) }
    }

    /// Computes the rows of one expert if the kernel takes them. Returns false if dot products are
    /// to be used, as in stock.
    ///
    /// `rows` are pairs (slot within the token's top-k, token); `activations` are the converted
    /// `src1` rows without gaps; `scratch` has at least [`BlockedExpert::scratch_bytes`], 64-byte
    /// aligned.
    ///
    /// # Safety
    /// `node` is a MUL_MAT_ID node whose dst and src1 are allocated; `expert` is valid for one
    /// expert's weights; `activations` for all of src1; every thread of the share calls this with
    /// the same arguments.
    pub unsafe fn compute(
        node: Tensor<'_>,
        expert: *const c_void,
        rows: &[[i32; 2]],
        activations: *const c_void,
        scratch: *mut c_void,
        share: ThreadShare,
    ) -> bool {
        let Some(weights) = node.src(0) else { return false };
        // The kernel finds the expert's bytes through the node's src0, so it gets copies that point
        // to these bytes. SAFETY: both tensors are alive (caller).
        let mut this = unsafe { Self { weights: *weights.as_ptr(), node: *node.as_ptr() } };
        this.weights.data = expert.cast_mut();
        this.weights.extra = std::ptr::null_mut();
        this.node.src[0] = &raw mut this.weights;
        // SAFETY: the caller's contract.
        unsafe { call(&mut this.node, rows, activations, scratch, share) }
    }
}

/// A MUL_MAT_ID node's product with one expert, on rows outside the graph's tensors.
#[derive(Clone, Copy)]
pub struct BlockedProduct {
    weights: sys::ggml_tensor,
    input: sys::ggml_tensor,
    node: sys::ggml_tensor,
}

impl BlockedProduct {
    /// The product of this MUL_MAT_ID node.
    ///
    /// # Panics
    /// If the node has no operands.
    pub fn of(node: Tensor<'_>) -> Self {
        let (weights, input) = (node.src(0).expect("weights"), node.src(1).expect("activations"));
        // SAFETY: the node and its operands are alive; plain copies.
        let mut this =
            unsafe { Self { weights: *weights.as_ptr(), input: *input.as_ptr(), node: *node.as_ptr() } };
        this.weights.extra = std::ptr::null_mut();
        // One activation row per "token", so that row numbers are the caller's. Converted rows are
        // found through wdata, whatever the operand's type was.
        this.input.ne[1] = 1;
        this.input.type_ = DataType::F32.0;
        this
    }

    /// Returns true if the kernel takes an expert with `rows` rows; if not, each output is one dot product.
    pub fn takes(&self, rows: usize) -> bool {
        let mut this = *self;
        this.link();
        let row = [[0; 2]];
        let none = std::ptr::dangling_mut::<c_void>();
        let params = params(none, ThreadShare { ith: 0, nth: c_int::MAX as usize });
        // SAFETY: with that many threads the first has no rows: nothing is read or written, only
        // the kernel's conditions are evaluated.
        unsafe {
            abi::ggml_compute_forward_mul_mat_id_tiled(
                &raw const params,
                &raw mut this.node,
                0,
                i64::try_from(rows).expect("rows of a batch"),
                row.as_ptr().cast(),
                none.cast(),
            )
        }
    }

    /// Number of rows from which the kernel takes an expert; [`usize::MAX`] means never.
    pub fn from_rows(&self) -> usize {
        const MAX_ROWS: usize = i32::MAX as usize;
        if !self.takes(MAX_ROWS) {
            return usize::MAX;
        }
        // A few, as a rule: found in a few steps.
        let (mut no, mut yes) = (0, 1);
        while !self.takes(yes) {
            (no, yes) = (yes, (2 * yes).min(MAX_ROWS));
        }
        while yes - no > 1 {
            let middle = no + (yes - no) / 2;
            if self.takes(middle) { yes = middle } else { no = middle }
        }
        yes
    }

    /// Computes a share of the weight rows (whole groups of [`BLOCKED_GROUP`]) for all `pairs`.
    ///
    /// Pair `[a, b]` multiplies activation row `b` and writes at `dst + a * stride_a + b *
    /// stride_b` bytes.
    ///
    /// # Safety
    /// `expert` is valid for one expert's weights, `activations` for converted rows without gaps up
    /// to the largest `b`, `dst` for a row of floats at every pair's place that nothing else
    /// accesses, `scratch` for this thread's part ([`BlockedExpert::scratch_bytes`] for one
    /// thread), 64-byte aligned. [`BlockedProduct::takes`] returned true.
    #[expect(clippy::too_many_arguments, reason = "one kernel call")]
    pub unsafe fn compute(
        &self,
        expert: *const c_void,
        pairs: &[[i32; 2]],
        activations: *const c_void,
        dst: *mut c_void,
        strides: [usize; 2],
        scratch: *mut c_void,
        share: ThreadShare,
    ) {
        let mut this = *self;
        this.weights.data = expert.cast_mut();
        this.node.data = dst;
        (this.node.nb[1], this.node.nb[2]) = (strides[0], strides[1]);
        this.link();
        // The kernel uses the scratch of thread `ith`; make that this thread's, whichever share it
        // computes.
        let part = this.scratch_stride();
        let scratch = scratch.cast::<u8>().wrapping_sub(share.ith * part).cast();
        // SAFETY: the caller's contract; the tensors are copies that point to its memory.
        let took = unsafe { call(&mut this.node, pairs, activations, scratch, share) };
        debug_assert!(took, "the kernel takes what it said it would");
    }

    /// Scratch of one thread in bytes.
    fn scratch_stride(&mut self) -> usize {
        // SAFETY: reads types and shapes of the copies.
        unsafe {
            abi::ggml_tiled_wdata_size(2, &raw mut self.node)
                - abi::ggml_tiled_wdata_size(1, &raw mut self.node)
        }
    }

    /// Points the copied node at the copied operands. Needed after every move of `self`.
    fn link(&mut self) {
        self.node.src[0] = &raw mut self.weights;
        self.node.src[1] = &raw mut self.input;
    }
}

fn params(activations: *mut c_void, share: ThreadShare) -> abi::ComputeParams {
    abi::ComputeParams {
        ith: c_int::try_from(share.ith).unwrap_or(0),
        nth: c_int::try_from(share.nth).unwrap_or(1),
        wsize: 0,
        wdata: activations,
        threadpool: std::ptr::null_mut(),
        use_ref: false,
    }
}

/// # Safety
/// `node`'s operands, `activations` and `scratch` are valid for what the kernel does with `rows`.
unsafe fn call(
    node: &mut sys::ggml_tensor,
    rows: &[[i32; 2]],
    activations: *const c_void,
    scratch: *mut c_void,
    share: ThreadShare,
) -> bool {
    let params = params(activations.cast_mut(), share);
    // SAFETY: the kernel reads wdata (converted activations), the expert at index 0 and `rows`,
    // writes dst rows and its thread's part of scratch, and does not touch the pool; all valid by
    // the caller's contract.
    unsafe {
        abi::ggml_compute_forward_mul_mat_id_tiled(
            &raw const params,
            node,
            0,
            i64::try_from(rows.len()).expect("rows of a batch"),
            rows.as_ptr().cast(),
            scratch.cast(),
        )
    }
}
