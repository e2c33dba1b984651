//! Activations of a MUL_MAT_ID, converted once for the dot products, as ggml's own `from_float` does.

use crate::kernels::{self, BLOCK, GROUP, Group, RowKernel};
use std::ffi::c_void;
use terrace_ggml::cpu::Kernels;
use terrace_ggml::cpu::blocked::ThreadShare;
use terrace_ggml::{DataType, Tensor};
use terrace_kernels::matmul::Product;

/// Converts this thread's part of a node's src1 to the activation type, as rows without gaps, as
/// ggml does.
pub fn convert(kernels: &Kernels, src1: Tensor<'_>, activations: *mut c_void, share: ThreadShare) {
    let [n, per_token, tokens, _] = src1.ne().map(|d| d.unsigned_abs() as usize);
    let [_, stride_row, stride_token, _] = src1.nb();
    let row_bytes = kernels.activation_bytes(n);
    let block = kernels.activation_block();
    let blocks = n / block;
    // Each row is split by blocks: with a single token there is no other parallelism. Quantisation
    // is per block, so the split does not change a bit.
    let (b0, b1) = (blocks * share.ith / share.nth, blocks * (share.ith + 1) / share.nth);
    if b0 == b1 {
        return;
    }
    let already = src1.ty() == kernels.activation_type();
    for token in 0..tokens {
        for slot in 0..per_token {
            // SAFETY: src1 is allocated and computed (it precedes this node); indices are within
            // its dimensions; the target was reserved for all rows when the run was prepared, and
            // threads write disjoint blocks.
            unsafe {
                let row = src1.data().cast::<u8>().add(slot * stride_row + token * stride_token);
                let target = activations.cast::<u8>().add((slot + token * per_token) * row_bytes);
                let skip = kernels.activation_bytes(b0 * block);
                if already {
                    let len = kernels.activation_bytes((b1 - b0) * block);
                    std::ptr::copy_nonoverlapping(row.add(skip), target.add(skip), len);
                } else {
                    let from = row.cast::<f32>().add(b0 * block);
                    kernels::convert(kernels, from, target.add(skip).cast(), (b1 - b0) * block);
                }
            }
        }
    }
}

/// Converts and arranges this thread's part of a node's src1, rows of 32-bit floats, for a kernel
/// of Terrace's own: each row as [`RowKernel::groups`] groups.
pub fn arrange(kernel: &RowKernel, src1: Tensor<'_>, to: *mut Group, share: ThreadShare) {
    let n = src1.ne()[0].unsigned_abs() as usize;
    let groups = RowKernel::groups(n);
    for unit in (share.ith..rows_of(src1) * groups).step_by(share.nth) {
        let (row, group) = (unit / groups, unit % groups);
        let offset = row_at(src1, row);
        // SAFETY: src1 is allocated and computed (it precedes this node), and the row is one of its
        // rows; the target was reserved for all rows when the run was prepared, and each unit is
        // one thread's.
        unsafe { arrange_group(kernel, src1.data().cast::<u8>().add(offset).cast(), n, group, to.add(unit)) };
    }
}

/// Number of rows of a tensor.
pub fn rows_of(tensor: Tensor<'_>) -> usize {
    tensor.ne()[1..].iter().map(|d| d.unsigned_abs() as usize).product()
}

/// Offset of a row of a tensor, in bytes.
pub fn row_at(tensor: Tensor<'_>, row: usize) -> usize {
    let [_, first, second, _] = tensor.ne().map(|d| d.unsigned_abs() as usize);
    let [_, one, two, three] = tensor.nb();
    row % first * one + row / first % second * two + row / first / second * three
}

/// Quantises this thread's part of a node's src1, rows of 32-bit floats, for tiles.
pub fn quantise(tile: &Product, src1: Tensor<'_>, to: *mut c_void, share: ThreadShare) {
    for row in (share.ith..rows_of(src1)).step_by(share.nth) {
        let offset = row_at(src1, row);
        // SAFETY: src1 is allocated and computed (it precedes this node), and the row is one of its rows; the target
        // was reserved for all rows when the run was prepared, and each row is one thread's.
        unsafe {
            let from = src1.data().cast::<u8>().add(offset).cast();
            tile.quantise(from, to.cast::<u8>().add(row * tile.activation_bytes()));
        }
    }
}

/// Converts and arranges one group of a row of `n` floats.
///
/// # Safety
/// `row` is valid for `n` floats, and `to` for one group.
pub unsafe fn arrange_group(kernel: &RowKernel, row: *const f32, n: usize, group: usize, to: *mut Group) {
    let first = group * GROUP;
    let blocks = GROUP.min(n / BLOCK - first);
    // SAFETY: the caller's contract; the blocks are within the row. Any bytes are a group.
    unsafe { kernel.arrange(row.add(first * BLOCK), blocks, &mut *to) };
}

/// Bytes of a MUL_MAT_ID node's converted activations.
pub fn activation_bytes(node: Tensor<'_>, kernels: &Kernels) -> usize {
    let Some(src1) = node.src(1) else { return 0 };
    let [n, per_token, tokens, _] = src1.ne().map(|d| d.unsigned_abs() as usize);
    kernels.activation_bytes(n) * per_token * tokens
}

/// Returns true if [`convert`] accepts the type of the node's activations.
pub fn convertible(node: Tensor<'_>, kernels: &Kernels) -> bool {
    node.src(1).is_some_and(|src1| src1.ty() == DataType::F32 || src1.ty() == kernels.activation_type())
}
