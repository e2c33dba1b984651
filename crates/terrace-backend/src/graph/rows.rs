//! GET_ROWS on a managed table: reads only the rows that are needed, each with its own request.

use crate::error::BackendError;
use crate::layout::ManagedTensor;
use std::ffi::{c_int, c_void};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_ggml::Tensor;
use terrace_ggml::backend::parked;
use terrace_ggml::cpu::{RawTensor, ToFloat, custom_node};
use terrace_model::Extent;
use terrace_store::{ReadInto, Store};

/// The data of a GET_ROWS node, fixed before the run.
pub struct RowsNode {
    pub tensor: *const ManagedTensor,
    pub to_float: ToFloat,
    pub store: *mut Store,
    pub stop: *const AtomicBool,
}

/// The custom node's function: thread 0 reads and converts, the other threads do nothing.
///
/// # Safety
/// `userdata` is a [`RowsNode`] whose store and flag are lent for the run.
pub unsafe extern "C" fn run(dst: *mut RawTensor, ith: c_int, _nth: c_int, userdata: *mut c_void) {
    if ith != 0 {
        return;
    }
    // SAFETY: the executor put a live RowsNode there; ggml passes the live node.
    let (node, dst) = unsafe { (&*userdata.cast::<RowsNode>(), custom_node(dst)) };
    let result = parked::guard("a row node", None, || Some(gather(node, dst)));
    if !matches!(result, Some(Ok(()))) {
        if let Some(Err(error)) = result {
            parked::park(Box::new(error));
        }
        // SAFETY: lent for the run.
        unsafe { (*node.stop).store(true, Ordering::Relaxed) };
    }
}

fn gather(node: &RowsNode, dst: Tensor<'_>) -> Result<(), BackendError> {
    // SAFETY: the layout outlives the run; the store is lent for it and used by thread 0 only.
    let (tensor, store) = unsafe { (&*node.tensor, &mut *node.store) };
    let (src0, src1) = (dst.src(0).expect("GET_ROWS has a table"), dst.src(1).expect("GET_ROWS has indices"));
    let [n, n_rows, ..] = src0.ne().map(i64::unsigned_abs);
    let row_bytes = src0.nb()[1];
    let [count, groups, layers, _] = src1.ne().map(|d| d.unsigned_abs() as usize);
    // Plain tables only (`usable`): no batches of tables, so every index is into the same one.
    let total = count * groups * layers;
    let mut bytes = vec![0u8; total * row_bytes];
    let mut reads = Vec::with_capacity(total);
    let mut rest = bytes.as_mut_slice();
    let place = |i: usize| (i % count, i / count % groups, i / count / groups);
    for i in 0..total {
        let (x, y, z) = place(i);
        let offset = x * src1.nb()[0] + y * src1.nb()[1] + z * src1.nb()[2];
        // SAFETY: src1 is an allocated I32 tensor, computed before this node; the offset is within
        // its dimensions.
        let row = unsafe { src1.data().cast::<u8>().add(offset).cast::<i32>().read_unaligned() };
        let index = u64::try_from(row).ok().filter(|&r| r < n_rows);
        let Some(index) = index else {
            return Err(BackendError::NoSuchRow { tensor: tensor.name.clone(), row, rows: n_rows });
        };
        let (dst, after) = std::mem::take(&mut rest).split_at_mut(row_bytes);
        rest = after;
        let offset = tensor.extent.offset + index * row_bytes as u64;
        reads.push(ReadInto {
            extent: Extent { offset, len: row_bytes as u64, ..tensor.extent },
            dst,
            name: &tensor.name,
        });
    }
    store.read_into(&mut reads, &mut |_| ControlFlow::Continue(()))?;
    drop(reads);
    for i in 0..total {
        let (x, y, z) = place(i);
        let offset = x * dst.nb()[1] + y * dst.nb()[2] + z * dst.nb()[3];
        // SAFETY: dst is allocated with one F32 row of `n` per index (GET_ROWS' shape); `bytes`
        // holds the same rows.
        unsafe {
            let out = dst.data().cast::<u8>().add(offset).cast::<f32>();
            node.to_float.convert(bytes.as_ptr().add(i * row_bytes).cast(), out, n as usize);
        }
    }
    Ok(())
}

/// Returns true if the node can be handled here: one plain table, with rows without gaps.
pub fn usable(node: Tensor<'_>) -> bool {
    let Some(src0) = node.src(0) else { return false };
    src0.storage() == src0 && src0.ne()[2] == 1 && src0.ne()[3] == 1 && node.nb()[0] == size_of::<f32>()
}
