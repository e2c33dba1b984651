//! GET_ROWS on a managed table: reads only the rows that are needed, which the store joins, and keeps for
//! later. Ids that are inputs of the graph are known before it runs: their rows are asked for then.

use crate::error::BackendError;
use crate::layout::ManagedTensor;
use std::ffi::{c_int, c_void};
use terrace_ggml::backend::parked;
use terrace_ggml::cpu::{RawTensor, Stop, ToFloat, custom_node};
use terrace_ggml::{Op, Tensor};
use terrace_store::{RowTable, Store};

/// The data of a GET_ROWS node, fixed before the run.
pub struct RowsNode {
    /// Index of the node.
    pub node: usize,
    pub tensor: *const ManagedTensor,
    pub to_float: ToFloat,
    pub store: *mut Store,
    pub stop: *const Stop,
}

/// The custom node's function: thread 0 reads and converts, the other threads do nothing.
///
/// # Safety
/// `userdata` is a [`RowsNode`] whose store and `stop` are lent for the run.
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
        unsafe { (*node.stop).set() };
    }
}

fn gather(node: &RowsNode, dst: Tensor<'_>) -> Result<(), BackendError> {
    // SAFETY: the layout outlives the run; the store is lent for it and used by thread 0 only.
    let (tensor, store) = unsafe { (&*node.tensor, &mut *node.store) };
    let (src0, ids) = operands(dst);
    let [n, n_rows, ..] = src0.ne().map(i64::unsigned_abs);
    let is_there = |row: &i32| u64::try_from(*row).is_ok_and(|row| row < n_rows);
    if let Some(row) = each_id(ids).find(|row| !is_there(row)) {
        return Err(BackendError::NoSuchRow { tensor: tensor.name.clone(), row, rows: n_rows });
    }
    let rows = each_id(ids).map(|row| u64::from(row.unsigned_abs()));
    store.read_rows(table(tensor, src0), rows, &mut |i, bytes| {
        let [x, y, z] = place(ids, i);
        let offset = x * dst.nb()[1] + y * dst.nb()[2] + z * dst.nb()[3];
        // SAFETY: dst is allocated with one F32 row of `n` per index (GET_ROWS' shape); `bytes` holds
        // a row of src0, which has as many elements.
        unsafe {
            let out = dst.data().cast::<u8>().add(offset).cast::<f32>();
            node.to_float.convert(bytes.as_ptr().cast(), out, n as usize);
        }
    })?;
    Ok(())
}

/// Asks the store for the rows of a node whose ids are known before its graph runs. Ids that are no
/// rows are the node's error, if it still has them when it runs.
///
/// # Errors
/// Errors of the store.
///
/// # Safety
/// `node` is the node of `rows`, whose layout is alive; the inputs of its graph are set.
pub unsafe fn expect(rows: &RowsNode, node: Tensor<'_>, store: &mut Store) -> Result<(), BackendError> {
    // SAFETY: by contract.
    let tensor = unsafe { &*rows.tensor };
    let (src0, ids) = operands(node);
    if ids.storage().op() == Op::NONE {
        let rows = each_id(ids).filter_map(|row| u64::try_from(row).ok());
        store.expect_rows(table(tensor, src0), rows)?;
    }
    Ok(())
}

/// The table and the ids of a node.
fn operands(node: Tensor<'_>) -> (Tensor<'_>, Tensor<'_>) {
    (node.src(0).expect("GET_ROWS has a table"), node.src(1).expect("GET_ROWS has indices"))
}

fn table(tensor: &ManagedTensor, src0: Tensor<'_>) -> RowTable {
    RowTable { block: tensor.block(0), row: src0.nb()[1] as u64 }
}

/// The position of the `i`-th id.
fn place(ids: Tensor<'_>, i: usize) -> [usize; 3] {
    let [count, groups, ..] = ids.ne().map(|d| d.unsigned_abs() as usize);
    [i % count, i / count % groups, i / count / groups]
}

/// The ids, which are I32. Plain tables only (`usable`): no batches of tables, so every id is into the
/// same one.
fn each_id(ids: Tensor<'_>) -> impl Iterator<Item = i32> {
    let [count, groups, layers, _] = ids.ne().map(|d| d.unsigned_abs() as usize);
    (0..count * groups * layers).map(move |i| {
        let [x, y, z] = place(ids, i);
        let offset = x * ids.nb()[0] + y * ids.nb()[1] + z * ids.nb()[2];
        // SAFETY: an allocated I32 tensor that is an input, or was computed before this; the offset is
        // within its dimensions.
        unsafe { ids.data().cast::<u8>().add(offset).cast::<i32>().read_unaligned() }
    })
}

/// Returns true if the node can be handled here: one plain table, with rows without gaps.
pub fn usable(node: Tensor<'_>) -> bool {
    let Some(src0) = node.src(0) else { return false };
    src0.storage() == src0 && src0.ne()[2] == 1 && src0.ne()[3] == 1 && node.nb()[0] == size_of::<f32>()
}
