//! MUL_MAT and MUL_MAT_ID of few tokens on weights in memory, with Terrace's own kernels.
//!
//! Decoding resident or mapped weights spends its time here. Such nodes become custom nodes for the
//! duration of a run. An activation row is converted and arranged once for all consecutive nodes
//! that use it; rows of weights are dealt to the threads in long stretches, which suits memory.
//! Results equal ggml's bit by bit ([`crate::kernels`]); products that ggml computes other than by
//! `vec_dot`, or for which there is no kernel, are left to ggml.

use super::alone::BY_DOT_PRODUCTS;
use crate::barrier::Barrier;
use crate::error::BackendError;
use crate::kernels::{BLOCK, Group, RowKernel};
use crate::moe::activations::arrange_group;
use crate::scratch::Scratch;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use terrace_ggml::backend::parked;
use terrace_ggml::cpu::blocked::BlockedProduct;
use terrace_ggml::cpu::{RawTensor, custom_node};
use terrace_ggml::{DataType, Graph, Op, SavedOp, Tensor};

/// Limits for the weight rows of a task; within them, each thread gets [`TURNS`] tasks.
const TASK_ROWS: std::ops::RangeInclusive<usize> = 16..=128;
const TURNS: usize = 8;

/// The products of a graph.
#[derive(Default)]
pub struct Products {
    nodes: Vec<ProductNode>,
    shared: Box<Shared>,
}

/// State that the threads share.
#[derive(Default)]
struct Shared {
    /// The arranged rows of the current node's input.
    input: Scratch,
    barrier: Barrier,
}

struct ProductNode {
    /// Its index in the graph.
    node: usize,
    saved: Option<SavedOp>,
    kernel: RowKernel,
    shared: *const Shared,
    /// Ends the graph's run.
    stop: *const AtomicBool,
    /// Whether the previous node has already arranged the input.
    arranged: bool,
    /// Weight rows of a task.
    task_rows: usize,
    next_task: AtomicUsize,
}

// SAFETY: the pointers are set and used within one `compute` call.
unsafe impl Send for Products {}

impl Products {
    /// Finds a graph's products, for `threads` threads; `is_there` tells whether the bytes of a
    /// node's weight are at its address, and the node is to be computed by itself.
    pub fn find<'g>(
        &mut self,
        graph: &Graph<'g>,
        threads: usize,
        is_there: impl Fn(usize, Tensor<'g>) -> bool,
    ) {
        self.nodes.clear();
        let mut groups = 0;
        // The last node whose input is arranged.
        let mut last: Option<(usize, Tensor<'g>, RowKernel)> = None;
        for i in 0..graph.len() {
            let node = graph.node(i);
            let Some((weights, input)) = node.src(0).zip(node.src(1)) else { continue };
            let Some(kernel) = kernel_for(node, weights, input).filter(|_| is_there(i, weights)) else {
                continue;
            };
            let unchanged =
                |from: usize| (from + 1..i).all(|between| graph.node(between).storage() != input.storage());
            let arranged = last.is_some_and(|(at, tensor, before)| {
                tensor == input && before.order() == kernel.order() && unchanged(at)
            });
            last = Some((i, input, kernel));
            let [n, rows_of_input, columns, _] = input.ne().map(|d| d.unsigned_abs() as usize);
            groups = groups.max(RowKernel::groups(n) * rows_of_input * columns);
            let [rows, outputs, ..] = node.ne().map(|d| d.unsigned_abs() as usize);
            let each = if node.op() == Op::MUL_MAT { rows } else { rows * outputs };
            let task_rows = (each / (threads * TURNS)).clamp(*TASK_ROWS.start(), *TASK_ROWS.end());
            self.nodes.push(ProductNode {
                node: i,
                saved: None,
                kernel,
                shared: &raw const *self.shared,
                stop: std::ptr::null(),
                arranged,
                task_rows,
                next_task: AtomicUsize::new(0),
            });
        }
        self.shared.input.reserve(groups * size_of::<Group>());
    }

    /// Forgets the last graph.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }

    /// Number of products found.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Turns the nodes into custom nodes until [`Products::restore`]; `stop` ends the run if one
    /// fails.
    pub fn rewrite(&mut self, graph: &Graph<'_>, stop: &AtomicBool) {
        for product in &mut self.nodes {
            (product.stop, *product.next_task.get_mut()) = (stop, 0);
            let (node, this) = (graph.node(product.node), (&raw const *product).cast_mut().cast());
            product.saved = Some(node.make_custom(run, this));
        }
    }

    /// Puts the nodes back.
    pub fn restore(&mut self, graph: &Graph<'_>) {
        for product in &mut self.nodes {
            if let Some(saved) = product.saved.take() {
                graph.node(product.node).restore(saved);
            }
        }
    }
}

/// The kernel for a node, if ggml would compute it by `vec_dot` on plain rows.
fn kernel_for(node: Tensor<'_>, weights: Tensor<'_>, input: Tensor<'_>) -> Option<RowKernel> {
    let float = size_of::<f32>();
    let [n, rows_of_input, columns, batches] = input.ne().map(|d| d.unsigned_abs() as usize);
    let [_, _, matrices, more] = weights.ne();
    let few = match node.op() {
        // Parameter 1 marks the weights as a Hadamard matrix, for which ggml does no
        // multiplication.
        Op::MUL_MAT if node.int_param(1) == 0 => {
            matrices == 1 && more == 1 && columns == 1 && (1..=BY_DOT_PRODUCTS).contains(&rows_of_input)
        }
        Op::MUL_MAT_ID => more == 1 && columns == 1 && node.ne()[2] == 1,
        _ => false,
    };
    let plain = few
        && batches == 1
        && n.is_multiple_of(BLOCK)
        && input.ty() == DataType::F32
        && node.ty() == DataType::F32
        && input.nb()[0] == float
        && node.nb()[0] == float
        && weights.is_contiguous();
    let kernel = RowKernel::of(weights.ty()).filter(|_| plain)?;
    let tokens = if node.op() == Op::MUL_MAT { rows_of_input } else { 1 };
    (!BlockedProduct::of(node).takes(tokens)).then_some(kernel)
}

/// The custom node's function.
///
/// # Safety
/// `userdata` is a [`ProductNode`] of the run; called by ggml on all threads of the run.
unsafe extern "C" fn run(dst: *mut RawTensor, ith: c_int, nth: c_int, userdata: *mut c_void) {
    // SAFETY: `rewrite` put a live ProductNode there; ggml passes the live node.
    let (node, dst) = unsafe { (&*userdata.cast::<ProductNode>(), custom_node(dst)) };
    let (Some(weights), Some(input)) = (dst.src(0), dst.src(1)) else { return };
    // SAFETY: `Products` keeps it for as long as the graph is computed.
    let shared = unsafe { &*node.shared };
    let (ith, nth) = (ith.unsigned_abs() as usize, nth.unsigned_abs() as usize);
    if !node.arranged {
        arrange(node.kernel, input, shared.input.as_ptr().cast(), ith, nth);
        shared.barrier.wait(nth);
    }
    match dst.src(2) {
        Some(ids) => node.multiply_chosen(dst, weights, input, ids),
        None => node.multiply_all(dst, weights, input),
    }
}

/// Arranges a thread's part of the input's rows, group by group.
fn arrange(kernel: RowKernel, input: Tensor<'_>, to: *mut Group, ith: usize, nth: usize) {
    let [n, rows, ..] = input.ne().map(|d| d.unsigned_abs() as usize);
    let groups = RowKernel::groups(n);
    for unit in (ith..rows * groups).step_by(nth) {
        let (row, group) = (unit / groups, unit % groups);
        // SAFETY: the input is computed; row and group are within its dimensions. There is room for
        // all units (`find`), and each is one thread's.
        unsafe {
            let from = input.data().cast::<u8>().add(row * input.nb()[1]).cast::<f32>();
            arrange_group(&kernel, from, n, group, to.add(unit));
        }
    }
}

impl ProductNode {
    /// Claims the next task: the index of its product, and its range of the `rows` weight rows.
    /// `None` if all `products` are done.
    fn claim(&self, rows: usize, products: usize) -> Option<(usize, std::ops::Range<usize>)> {
        let tasks = rows.div_ceil(self.task_rows);
        let task = self.next_task.fetch_add(1, Ordering::Relaxed);
        let (product, task) = (task / tasks, task % tasks);
        (product < products).then(|| (product, task * self.task_rows..rows.min((task + 1) * self.task_rows)))
    }

    /// MUL_MAT: multiplies every column with all rows.
    fn multiply_all(&self, dst: Tensor<'_>, weights: Tensor<'_>, input: Tensor<'_>) {
        let [n, rows, ..] = weights.ne().map(|d| d.unsigned_abs() as usize);
        let columns = input.ne()[1].unsigned_abs() as usize;
        while let Some((_, range)) = self.claim(rows, 1) {
            let columns = (0..columns).map(|column| (column, dst.nb()[1] * column));
            self.multiply(weights, 0, range, n, columns, dst);
        }
    }

    /// MUL_MAT_ID of one token: multiplies with every chosen matrix.
    fn multiply_chosen(&self, dst: Tensor<'_>, weights: Tensor<'_>, input: Tensor<'_>, ids: Tensor<'_>) {
        let [n, rows, matrices, _] = weights.ne().map(|d| d.unsigned_abs() as usize);
        let rows_of_input = input.ne()[1].unsigned_abs() as usize;
        let chosen = dst.ne()[1].unsigned_abs() as usize;
        while let Some((slot, range)) = self.claim(rows, chosen) {
            // SAFETY: ids is a computed I32 tensor with an id for each slot.
            let id = unsafe { ids.data().cast::<u8>().add(slot * ids.nb()[0]).cast::<i32>().read() };
            let Some(matrix) = usize::try_from(id).ok().filter(|&matrix| matrix < matrices) else {
                let experts = u32::try_from(matrices).unwrap_or(u32::MAX);
                let error = BackendError::NoSuchExpert { tensor: weights.name(), expert: id, experts };
                parked::park(Box::new(error));
                // SAFETY: lent for the run.
                unsafe { (*self.stop).store(true, Ordering::Relaxed) };
                return;
            };
            let from = slot % rows_of_input;
            let column = std::iter::once((from, dst.nb()[1] * slot));
            self.multiply(weights, matrix * weights.nb()[2], range, n, column, dst);
        }
    }

    /// Multiplies weight rows `range` of the matrix at offset `matrix` bytes with columns: an arranged row
    /// each, and an offset in bytes of the result.
    fn multiply(
        &self,
        weights: Tensor<'_>,
        matrix: usize,
        range: std::ops::Range<usize>,
        n: usize,
        columns: impl Iterator<Item = (usize, usize)>,
        dst: Tensor<'_>,
    ) {
        let stride = weights.nb()[1];
        // SAFETY: the matrix has the rows; the input is arranged (the barrier, or the node before);
        // each row of the result is claimed by one thread.
        unsafe {
            let rows = (*self.shared).input.as_ptr().cast::<Group>();
            let columns = columns.map(|(from, to)| {
                let out = dst.data().cast::<u8>().add(to).cast::<f32>().add(range.start);
                (rows.add(from * RowKernel::groups(n)).cast_const(), out)
            });
            let first = weights.data().cast::<u8>().add(matrix + range.start * stride);
            self.kernel.multiply(first.cast(), stride, range.len(), n, columns);
        }
    }
}
