//! Products with whole matrices by tiles of Terrace's own, where kernels may add in an order of their own.
//!
//! MUL_MAT nodes become custom nodes for the duration of a run. Rows of the input are quantised once
//! for all consecutive nodes that use them. A token's result does not depend on the others of its pass, but it differs
//! from that of dot products, by which ggml and [`super::products`] multiply few tokens where tiles do not.

use super::custom::{self, CustomNode};
use super::turns::{Claimed, Turns};
use crate::barrier::Barrier;
use crate::moe::activations::{quantise, row_at, rows_of};
use crate::scratch::Scratch;
use crate::tiles::{in_layout, matrix_tile, tiled_from};
use std::ffi::{c_int, c_void};
use terrace_ggml::cpu::blocked::ThreadShare;
use terrace_ggml::cpu::{RawTensor, custom_node};
use terrace_ggml::{DataType, Graph, Op, SavedOp, Tensor};
use terrace_kernels::matmul::{Column, FEW, PANEL, Product};

/// Limits for the panels of weights of a task; within them, each thread gets [`TURNS`] tasks.
const TASK_PANELS: std::ops::RangeInclusive<usize> = 1..=4;
const TURNS: usize = 8;
/// The same where each task packs activations.
const PACKED_TURNS: usize = 2;

/// The tiled products of a graph.
#[derive(Default)]
pub struct Tiles {
    nodes: Vec<TileNode>,
    /// Counters of all nodes, of each as many as there are threads.
    claimed: Vec<Claimed>,
    shared: Box<Shared>,
}

/// State that the nodes of a graph share.
#[derive(Default)]
struct Shared {
    /// The quantised rows of the current node's input.
    input: Scratch,
    /// Its columns: these rows, and where results go.
    columns: Scratch,
    /// A panel for each thread.
    panels: Scratch,
    barrier: Barrier,
}

struct TileNode {
    /// Its index in the graph.
    node: usize,
    saved: Option<SavedOp>,
    product: Product,
    shared: *const Shared,
    /// True if the previous node has already quantised the input.
    quantised: bool,
    /// Weight rows of a task.
    task_rows: usize,
    /// By thread, the number of tasks of its stretch that are claimed.
    claimed: *const [Claimed],
}

impl CustomNode for TileNode {
    fn index(&self) -> usize {
        self.node
    }

    fn saved(&mut self) -> &mut Option<SavedOp> {
        &mut self.saved
    }
}

// SAFETY: the pointers are set and used within one `compute` call.
unsafe impl Send for Tiles {}

/// Returns true for products that tiles compute, if the weight's rows are at its address.
pub fn takes(node: Tensor<'_>) -> bool {
    node.src(0).zip(node.src(1)).is_some_and(|(weights, input)| product_of(node, weights, input).is_some())
}

/// Returns true for products that tiles compute whatever the number of tokens, so that each token has the bits that it
/// has alone.
pub fn keeps_bits(node: Tensor<'_>) -> bool {
    let of = |(weights, input)| product_of(node, weights, input);
    node.src(0).zip(node.src(1)).and_then(of).is_some_and(|product| tiled_from(&product) == 1)
}

impl Tiles {
    /// Finds a graph's products, for `threads` threads; `has_rows` tells whether a weight's rows are at its address
    /// when the node runs, `interleaved` whether they are interleaved there.
    pub fn find<'g>(
        &mut self,
        graph: &Graph<'g>,
        threads: usize,
        has_rows: impl Fn(Tensor<'g>) -> bool,
        interleaved: impl Fn(Tensor<'g>) -> bool,
    ) {
        self.nodes.clear();
        let (mut input_bytes, mut most) = (0, 0);
        // The last node whose input is quantised.
        let mut last: Option<(usize, Tensor<'g>, Product)> = None;
        for i in 0..graph.len() {
            let node = graph.node(i);
            let Some((weights, input)) = node.src(0).zip(node.src(1)) else { continue };
            let Some(product) = product_of(node, weights, input).filter(|_| has_rows(weights)) else {
                continue;
            };
            let Some(product) = in_layout(product, interleaved(weights)) else { continue };
            let unchanged =
                |from: usize| (from + 1..i).all(|between| graph.node(between).storage() != input.storage());
            let quantised = last.is_some_and(|(at, tensor, before)| {
                tensor == input && before.shares_activations(&product) && unchanged(at)
            });
            last = Some((i, input, product));
            let tokens = rows_of(input);
            input_bytes = input_bytes.max(product.activation_bytes() * tokens);
            most = most.max(tokens);
            let panels = (weights.ne()[1].unsigned_abs() as usize).div_ceil(PANEL);
            // Where activations are packed for each task, tasks are few.
            let at_once = product.rows_at_once().end() / PANEL;
            let turns = if at_once > 1 { PACKED_TURNS } else { TURNS };
            let most = at_once.max(*TASK_PANELS.end());
            let each = (panels / (threads * turns)).clamp(*TASK_PANELS.start(), most);
            self.nodes.push(TileNode {
                node: i,
                saved: None,
                product,
                shared: &raw const *self.shared,
                quantised,
                task_rows: each * PANEL,
                claimed: &[],
            });
        }
        self.claimed.resize_with(self.nodes.len() * threads, Claimed::default);
        for (tile, claimed) in self.nodes.iter_mut().zip(self.claimed.chunks(threads)) {
            tile.claimed = claimed;
        }
        self.shared.input.reserve(input_bytes);
        self.shared.columns.reserve(most * size_of::<Column>());
        self.shared.panels.reserve(if self.nodes.is_empty() {
            0
        } else {
            threads * Product::scratch_bytes()
        });
    }

    /// Forgets the last graph.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }

    /// Returns true if this node multiplies by interleaved weights.
    pub fn multiplies_interleaved(&self, node: usize) -> bool {
        self.nodes.iter().any(|tile| tile.node == node && tile.product.takes_interleaved())
    }

    /// Number of products found.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Turns the nodes into custom nodes until [`Tiles::restore`].
    pub fn rewrite(&mut self, graph: &Graph<'_>) {
        self.claimed.iter_mut().for_each(Claimed::reset);
        custom::rewrite(&mut self.nodes, graph, run);
    }

    /// Puts the nodes back.
    pub fn restore(&mut self, graph: &Graph<'_>) {
        custom::restore(&mut self.nodes, graph);
    }
}

/// The product that a node is, if tiles compute it.
fn product_of(node: Tensor<'_>, weights: Tensor<'_>, input: Tensor<'_>) -> Option<Product> {
    let float = size_of::<f32>();
    // Dimension 1 decides, whatever the number of rows: where it is that of heads, tokens are the next.
    let [n, tokens, ..] = input.ne().map(|d| d.unsigned_abs() as usize);
    let [_, _, matrices, of_matrices] = weights.ne();
    // Parameter 1 marks a Hadamard matrix, which ggml does not multiply by.
    let plain = node.op() == Op::MUL_MAT
        && node.int_param(1) == 0
        && (matrices, of_matrices) == (1, 1)
        && input.ty() == DataType::F32
        && node.ty() == DataType::F32
        && input.nb()[0] == float
        && node.nb()[0] == float
        && weights.storage() == weights
        && weights.is_contiguous();
    plain.then(|| matrix_tile(weights.ty(), n, tokens)).flatten()
}

/// The custom node's function.
///
/// # Safety
/// `userdata` is a [`TileNode`] of the run; called by ggml on all threads of the run.
unsafe extern "C" fn run(dst: *mut RawTensor, ith: c_int, nth: c_int, userdata: *mut c_void) {
    // SAFETY: `rewrite` put a live TileNode there; ggml passes the live node.
    let (node, dst) = unsafe { (&*userdata.cast::<TileNode>(), custom_node(dst)) };
    let (Some(weights), Some(input)) = (dst.src(0), dst.src(1)) else { return };
    let (ith, nth) = (ith.unsigned_abs() as usize, nth.unsigned_abs() as usize);
    // SAFETY: `Tiles` keeps both for as long as the graph is computed, and nothing resizes them meanwhile.
    let (shared, claimed) = unsafe { (&*node.shared, &*node.claimed) };
    let product = &node.product;
    let tokens = rows_of(input);
    let column_of = |token: usize| {
        let input = shared.input.as_ptr().cast::<u8>().wrapping_add(token * product.activation_bytes());
        let out = dst.data().cast::<u8>().wrapping_add(row_at(dst, token)).cast();
        Column { input, out }
    };
    if !node.quantised {
        quantise(product, input, shared.input.as_ptr(), ThreadShare { ith, nth });
    }
    // Each thread makes few columns itself: then there is nothing to wait for if the input is quantised.
    let few: [Column; FEW] = std::array::from_fn(column_of);
    let columns = match few.get(..tokens) {
        Some(few) => {
            if !node.quantised {
                shared.barrier.wait(nth);
            }
            few
        }
        None => {
            let columns: *mut Column = shared.columns.as_ptr().cast();
            for token in (ith..tokens).step_by(nth) {
                // SAFETY: reserved for all tokens.
                unsafe { columns.add(token).write(column_of(token)) };
            }
            shared.barrier.wait(nth);
            // SAFETY: all are written (the barrier).
            unsafe { std::slice::from_raw_parts(columns, tokens) }
        }
    };
    // A panel for each thread that the graph was prepared for, which are those of the run.
    if ith >= claimed.len() {
        return;
    }
    let panel = shared.panels.as_ptr().cast::<u8>().wrapping_add(ith * Product::scratch_bytes());
    let rows = weights.ne()[1].unsigned_abs() as usize;
    let mut turns = Turns::of(ith, claimed);
    while let Some(task) = turns.claim(rows.div_ceil(node.task_rows)) {
        let range = task * node.task_rows..rows.min((task + 1) * node.task_rows);
        // SAFETY: the columns are complete (the barrier); the weights have the rows; each row of the result is claimed
        // by one thread, whose panel this is.
        unsafe {
            product.run(weights.data().cast_const().cast(), weights.nb()[1], range, columns, panel);
        }
    }
}
