//! MUL_MAT and MUL_MAT_ID of few tokens on weights in memory, dealt to threads by Terrace.
//!
//! Decoding resident or mapped weights spends its time here. Such nodes become custom nodes for the
//! duration of a run. An activation row is converted and arranged once for all consecutive nodes
//! that use it; each thread has one stretch of all weight rows, and helps others when it is done: a
//! processor's own prefetching runs past the rows that it is given, and in short turns half of what it
//! fetches is another thread's.
//! Results equal ggml's bit by bit ([`crate::kernels`]); products that ggml computes other than by
//! `vec_dot`, or for which there is no kernel, are left to ggml.

use super::bits::BY_DOT_PRODUCTS;
use super::custom::{self, CustomNode};
use super::multiplier::Multiplier;
use super::tiles;
use super::turns::{Claimed, Turns};
use crate::barrier::Barrier;
use crate::block::MATRICES;
use crate::error::BackendError;
use crate::memory::read_ahead::ReadAhead;
use crate::scratch::Scratch;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::Arc;
use terrace_ggml::backend::parked;
use terrace_ggml::cpu::blocked::{BlockedProduct, ThreadShare};
use terrace_ggml::cpu::{RawTensor, Stop, custom_node};
use terrace_ggml::{DataType, Graph, Op, SavedOp, Tensor};
use terrace_kernels::matmul::Interleaving;

/// Limits for the weight rows of a task; within them, each thread gets [`TURNS`] tasks.
const TASK_ROWS: std::ops::RangeInclusive<usize> = 16..=128;
const TURNS: usize = 8;

/// The products of a graph.
#[derive(Default)]
pub struct Products {
    nodes: Vec<ProductNode>,
    /// Counters of all nodes, of each as many as there are threads.
    claimed: Vec<Claimed>,
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
    multiplier: Multiplier,
    shared: *const Shared,
    /// Ends the graph's run.
    stop: *const Stop,
    /// True if the previous node has already arranged the input.
    arranged: bool,
    /// Weight rows of a task.
    task_rows: usize,
    /// By thread, the number of tasks of its stretch that are claimed.
    claimed: *const [Claimed],
    /// What is to be read before, while mapped files are not all in memory.
    ahead: Option<Ahead>,
}

/// The mapped weights that a node, and those after it with the same chosen experts, are about to use.
struct Ahead {
    files: Arc<ReadAhead>,
    /// Addresses of the stacks, and bytes of a matrix.
    stacks: Vec<(usize, usize)>,
}

impl CustomNode for ProductNode {
    fn index(&self) -> usize {
        self.node
    }

    fn saved(&mut self) -> &mut Option<SavedOp> {
        &mut self.saved
    }
}

// SAFETY: the pointers are set and used within one `compute` call.
unsafe impl Send for Products {}

impl Products {
    /// Finds a graph's products, for `threads` threads; `fast`: none of whole matrices that tiles take. `tiled`: those of
    /// experts that tiles multiply, where these take single rows. `is_there` tells whether the bytes of a node's weight are at
    /// its address, and the node is to be computed by itself; `interleaved` whether their rows are interleaved.
    pub fn find<'g>(
        &mut self,
        graph: &Graph<'g>,
        threads: usize,
        fast: bool,
        is_there: impl Fn(usize, Tensor<'g>) -> bool,
        tiled: impl Fn(usize) -> bool,
        interleaved: impl Fn(Tensor<'g>) -> bool,
    ) {
        self.nodes.clear();
        let mut bytes = 0;
        // The last node whose input is arranged.
        let mut last: Option<(usize, Tensor<'g>, Multiplier)> = None;
        for i in 0..graph.len() {
            let node = graph.node(i);
            let Some((weights, input)) = node.src(0).zip(node.src(1)) else { continue };
            let Some(multiplier) =
                multiplier_for(node, weights, input, fast, tiled(i)).filter(|_| is_there(i, weights))
            else {
                continue;
            };
            let Some(multiplier) = multiplier.in_layout(interleaved(weights)) else { continue };
            let unchanged =
                |from: usize| (from + 1..i).all(|between| graph.node(between).storage() != input.storage());
            let arranged = last.is_some_and(|(at, tensor, before)| {
                tensor == input && before.shares_inputs(&multiplier) && unchanged(at)
            });
            last = Some((i, input, multiplier));
            let [n, rows_of_input, columns, _] = input.ne().map(|d| d.unsigned_abs() as usize);
            bytes = bytes.max(multiplier.input_bytes(n) * rows_of_input * columns);
            let [rows, outputs, ..] = node.ne().map(|d| d.unsigned_abs() as usize);
            let each = if node.op() == Op::MUL_MAT { rows } else { rows * outputs };
            let task_rows = (each / (threads * TURNS)).clamp(*TASK_ROWS.start(), *TASK_ROWS.end());
            let task_rows = task_rows.next_multiple_of(Interleaving::ROWS);
            self.nodes.push(ProductNode {
                node: i,
                saved: None,
                multiplier,
                shared: &raw const *self.shared,
                stop: std::ptr::null(),
                arranged,
                task_rows,
                claimed: &[],
                ahead: None,
            });
        }
        self.claimed.resize_with(self.nodes.len() * threads, Claimed::default);
        for (product, claimed) in self.nodes.iter_mut().zip(self.claimed.chunks(threads)) {
            product.claimed = claimed;
        }
        self.shared.input.reserve(bytes);
    }

    /// Has the nodes ask for their weights, of which some are still to be read: matrices by themselves, stacks of experts by
    /// the first node with the same chosen experts.
    pub fn ask_ahead(&mut self, graph: &Graph<'_>, files: &Arc<ReadAhead>) {
        for index in 0..self.nodes.len() {
            let (before, from) = self.nodes.split_at_mut(index);
            let product = &mut from[0];
            let node = graph.node(product.node);
            let Some(weights) = node.src(0) else { continue };
            let stack = (weights.data() as usize, weights.nb()[2]);
            let ids = node.src(2);
            let asks_for_same =
                |ahead: &&mut ProductNode| ahead.ahead.is_some() && graph.node(ahead.node).src(2) == ids;
            match before.iter_mut().rev().take(MATRICES).filter(|_| ids.is_some()).find(asks_for_same) {
                Some(ProductNode { ahead: Some(first), .. }) => first.stacks.push(stack),
                _ => product.ahead = Some(Ahead { files: Arc::clone(files), stacks: vec![stack] }),
            }
        }
    }

    /// Forgets the last graph.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }

    /// Returns true if this node multiplies by interleaved weights.
    pub fn multiplies_interleaved(&self, node: usize) -> bool {
        self.nodes.iter().any(|product| product.node == node && product.multiplier.takes_interleaved())
    }

    /// Number of products found.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Turns the nodes into custom nodes until [`Products::restore`]; `stop` ends the run if one
    /// fails.
    pub fn rewrite(&mut self, graph: &Graph<'_>, stop: &Stop) {
        self.claimed.iter_mut().for_each(Claimed::reset);
        self.nodes.iter_mut().for_each(|product| product.stop = stop);
        custom::rewrite(&mut self.nodes, graph, run);
    }

    /// Puts the nodes back.
    pub fn restore(&mut self, graph: &Graph<'_>) {
        custom::restore(&mut self.nodes, graph);
    }
}

/// The multiplier of a node, if ggml would compute it by `vec_dot` on plain rows. `fast`, `tiled`: see [`Products::find`].
fn multiplier_for(
    node: Tensor<'_>,
    weights: Tensor<'_>,
    input: Tensor<'_>,
    fast: bool,
    tiled: bool,
) -> Option<Multiplier> {
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
        && input.ty() == DataType::F32
        && node.ty() == DataType::F32
        && input.nb()[0] == float
        && node.nb()[0] == float
        && weights.is_contiguous();
    if !plain {
        return None;
    }
    let tokens = if node.op() == Op::MUL_MAT { rows_of_input } else { 1 };
    if fast && node.op() == Op::MUL_MAT && tiles::takes(node) {
        return None;
    }
    let tile = || Multiplier::tile(weights.ty(), n);
    if let Some(tile) = (tiled && node.op() == Op::MUL_MAT_ID).then(tile).flatten() {
        return Some(tile);
    }
    let multiplier = Multiplier::of(weights.ty(), n, tokens)?;
    (!BlockedProduct::of(node).takes(tokens)).then_some(multiplier)
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
    let share = ThreadShare { ith: ith.unsigned_abs() as usize, nth: nth.unsigned_abs() as usize };
    if let Some(ahead) = node.ahead.as_ref().filter(|_| share.ith == 0) {
        ahead.want(dst);
    }
    if !node.arranged {
        node.multiplier.arrange(input, shared.input.as_ptr(), share);
        shared.barrier.wait(share.nth);
    }
    // SAFETY: as above; nothing resizes the counters meanwhile.
    let turns = Turns::of(share.ith, unsafe { &*node.claimed });
    match dst.src(2) {
        Some(ids) => node.multiply_chosen(dst, weights, input, ids, turns),
        None => node.multiply_all(dst, weights, input, turns),
    }
}

impl Ahead {
    /// Has the weights read that a node of one token, or of whole matrices, is about to use.
    fn want(&self, dst: Tensor<'_>) {
        if self.files.is_complete() {
            return;
        }
        let Some(ids) = dst.src(2) else {
            for &(first, bytes) in &self.stacks {
                self.files.want(first as *const u8, bytes);
            }
            return;
        };
        for slot in 0..dst.ne()[1].unsigned_abs() as usize {
            // SAFETY: ids is a computed I32 tensor with an id for each slot.
            let id = unsafe { ids.data().cast::<u8>().add(slot * ids.nb()[0]).cast::<i32>().read() };
            for &(first, bytes) in &self.stacks {
                // Ids that are none are reported where they are used; addresses beyond the file are ignored.
                let expert = usize::try_from(id).unwrap_or(0).saturating_mul(bytes);
                self.files.want(first.wrapping_add(expert) as *const u8, bytes);
            }
        }
    }
}

impl ProductNode {
    /// Claims a task: the index of its product, and its range of the `rows` weight rows.
    /// `None` if all `products` are done.
    fn claim(&self, turns: &mut Turns<'_>, rows: usize, products: usize) -> Option<(usize, Range<usize>)> {
        let tasks = rows.div_ceil(self.task_rows);
        let task = turns.claim(tasks * products)?;
        let (product, task) = (task / tasks, task % tasks);
        Some((product, task * self.task_rows..rows.min((task + 1) * self.task_rows)))
    }

    /// MUL_MAT: multiplies every column with all rows.
    fn multiply_all(&self, dst: Tensor<'_>, weights: Tensor<'_>, input: Tensor<'_>, mut turns: Turns<'_>) {
        let [n, rows, ..] = weights.ne().map(|d| d.unsigned_abs() as usize);
        let columns = input.ne()[1].unsigned_abs() as usize;
        while let Some((_, range)) = self.claim(&mut turns, rows, 1) {
            let columns = (0..columns).map(|column| (column, dst.nb()[1] * column));
            self.multiply(weights, 0, range, n, columns, dst);
        }
    }

    /// MUL_MAT_ID of one token: multiplies with every chosen matrix.
    fn multiply_chosen(
        &self,
        dst: Tensor<'_>,
        weights: Tensor<'_>,
        input: Tensor<'_>,
        ids: Tensor<'_>,
        mut turns: Turns<'_>,
    ) {
        let [n, rows, matrices, _] = weights.ne().map(|d| d.unsigned_abs() as usize);
        let rows_of_input = input.ne()[1].unsigned_abs() as usize;
        let chosen = dst.ne()[1].unsigned_abs() as usize;
        while let Some((slot, range)) = self.claim(&mut turns, rows, chosen) {
            // SAFETY: ids is a computed I32 tensor with an id for each slot.
            let id = unsafe { ids.data().cast::<u8>().add(slot * ids.nb()[0]).cast::<i32>().read() };
            let Some(matrix) = usize::try_from(id).ok().filter(|&matrix| matrix < matrices) else {
                let experts = u32::try_from(matrices).unwrap_or(u32::MAX);
                let error = BackendError::NoSuchExpert { tensor: weights.name(), expert: id, experts };
                parked::park(Box::new(error));
                // SAFETY: lent for the run.
                unsafe { (*self.stop).set() };
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
        range: Range<usize>,
        n: usize,
        columns: impl Iterator<Item = (usize, usize)>,
        dst: Tensor<'_>,
    ) {
        // SAFETY: the matrix has the rows; the input is arranged (the barrier, or the node before);
        // each row of the result is claimed by one thread.
        unsafe {
            let columns = columns.map(|(from, to)| (from, dst.data().cast::<u8>().add(to).cast::<f32>()));
            let first = weights.data().cast::<u8>().add(matrix);
            let inputs = (*self.shared).input.as_ptr();
            self.multiplier.multiply(first, weights.nb()[1], range, n, inputs, columns);
        }
    }
}
