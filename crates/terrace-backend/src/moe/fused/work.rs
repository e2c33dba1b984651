//! The work of a node: rows by expert, scratch, and the state of every expert.

use super::sequence::{Item, Sequence};
use crate::block::{Block, Matrix};
use crate::error::BackendError;
use crate::routing::Routing;
use crate::scratch::Scratch;
use crate::sync::atomic::{AtomicU32, Ordering};
use terrace_ggml::Tensor;
use terrace_ggml::cpu::blocked::BLOCKED_GROUP;
use terrace_ggml::cpu::custom_node;

/// Weight rows per task: enough to amortise claiming it, few enough to spread over the threads.
/// Divides the blocked kernel's group.
pub const TASK_ROWS: usize = 32;
const _: () = assert!(BLOCKED_GROUP.is_multiple_of(TASK_ROWS));
/// Token rows of an expert from which it is asked before each task whether the run is to end: a task takes a tenth of
/// a millisecond then, and a host's answer may take microseconds.
pub const ASKED_ROWS: usize = 32;
/// Token rows of an activation task.
const ACT_ROWS: usize = 16;
/// Minimum number of experts with scratch at the same time, where they do not all fit: one per
/// stage, and one to start.
const LEAST_SLOTS: usize = 4;
/// Scratch in bytes that all experts of a node may take together; beyond it they take turns. Many
/// times what decoding with 8 experts of 2,048 floats needs.
const SCRATCH: usize = 4 << 20;

/// The experts' state that arrivals change.
#[derive(Clone, Copy)]
pub struct State<'a> {
    pub items: &'a [Item],
    /// Experts by turn.
    pub order: &'a [AtomicU32],
    /// True if an expert's first products may be computed before its last matrix arrives.
    pub halves: bool,
}

/// Number of tasks of an expert by stage, and the layout of its scratch.
#[derive(Clone, Copy, Default, Debug)]
pub struct Shape {
    /// Tasks of each stage: first products (all matrices together), activation, last product.
    pub tasks: [usize; 3],
    /// Maximum number of rows of an expert.
    pub rows: usize,
    /// Number of experts with scratch at the same time.
    pub slots: usize,
    /// Scratch of an expert in bytes.
    pub slot_bytes: usize,
    /// Offset in the scratch of the last product's converted input.
    pub converted: usize,
    /// Offset in the scratch of the same, arranged for Terrace's own kernels, and quantised for its tiles. Only
    /// prompts have more than one of these.
    pub arranged: usize,
    pub tiled: usize,
}

/// A node's work. Reused from node to node.
#[derive(Default)]
pub struct Work {
    pub routing: Routing,
    pub items: Vec<Item>,
    /// Experts by turn.
    pub order: Vec<AtomicU32>,
    pub shape: Shape,
    /// For each pair of the routing: its index within the expert, and its converted input row.
    pub into_scratch: Vec<[i32; 2]>,
    /// For each pair of the routing: its row of the output (slot + token * top-k), and its index
    /// within the expert.
    pub into_output: Vec<[i32; 2]>,
    pub scratch: Scratch,
}

impl Work {
    /// Reads the router's choice, and lays out the work that follows from it.
    pub fn read(
        &mut self,
        block: &Block,
        ids: Tensor<'_>,
        input: Tensor<'_>,
        dst: Tensor<'_>,
    ) -> Result<(), BackendError> {
        self.routing.reset();
        // SAFETY: the block's tensors are the graph's.
        let name = || unsafe { custom_node(block.down.weights) }.name();
        self.routing.read(ids, block.experts, block.prompts.as_deref(), name)?;
        let touched = self.routing.touched().len();
        let (per_token, top_k) = (input.ne()[1], dst.ne()[1]);
        self.into_scratch.clear();
        self.into_output.clear();
        let mut rows = 0;
        for item in 0..touched {
            let pairs = self.routing.rows(item);
            rows = rows.max(pairs.len());
            for (i, &[slot, token]) in (0i32..).zip(pairs) {
                let row = i64::from(slot) % per_token + i64::from(token) * per_token;
                let output = i64::from(slot) + i64::from(token) * top_k;
                self.into_scratch.push([i, as_row(row)]);
                self.into_output.push([as_row(output), i]);
            }
        }
        self.shape = Shape::of(block, rows, touched);
        self.scratch.reserve(self.shape.slots * self.shape.slot_bytes);
        if self.items.len() < touched {
            self.items.resize_with(touched, Item::default);
            self.order.resize_with(touched, AtomicU32::default);
        }
        for item in &self.items[..touched] {
            item.low.store(false, Ordering::Relaxed);
            for weights in &item.weights {
                weights.store(std::ptr::null_mut(), Ordering::Relaxed);
            }
            for (left, tasks) in item.left.iter().zip(self.shape.tasks) {
                left.store(u32::try_from(tasks).expect("rows of a matrix"), Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// State that arrivals change.
    pub fn state(&self) -> State<'_> {
        let halves = self.shape.slots >= self.routing.touched().len();
        State { items: &self.items, order: &self.order, halves }
    }

    /// Dependencies among the experts' tasks, for this many threads.
    pub fn sequence(&self, threads: usize) -> Sequence<'_> {
        let Shape { tasks, slots, .. } = self.shape;
        Sequence { tasks, threads, slots, items: &self.items, order: &self.order }
    }

    /// The pairs of an expert, from [`Work::into_scratch`] or [`Work::into_output`].
    pub fn pairs<'a>(&self, all: &'a [[i32; 2]], item: usize) -> &'a [[i32; 2]] {
        &all[self.routing.range(item)]
    }
}

impl Shape {
    fn of(block: &Block, rows: usize, touched: usize) -> Self {
        let tasks = |rows: usize| rows.div_ceil(TASK_ROWS);
        let first = block.first.iter().map(|matrix| tasks(matrix.rows)).sum();
        let downs = [Some(&block.down), block.low.as_ref().map(|low| &low.down)];
        let most = |bytes: fn(&Matrix, usize) -> usize| {
            let row = downs.into_iter().flatten().map(|down| bytes(down, down.inner)).max().unwrap_or(0);
            (rows * row).next_multiple_of(64)
        };
        let [of_converted, of_arranged, of_tiled] =
            [most(Matrix::converted_bytes), most(Matrix::arranged_bytes), most(Matrix::tiled_bytes)];
        let converted = (rows * block.floats * size_of::<f32>()).next_multiple_of(64);
        let (arranged, tiled, slot_bytes) = if block.prompts.is_some() {
            let (arranged, tiled) = (converted + of_converted, converted + of_converted + of_arranged);
            (arranged, tiled, tiled + of_tiled)
        } else {
            (converted, converted, converted + of_converted.max(of_arranged).max(of_tiled))
        };
        let slots = (SCRATCH / slot_bytes.max(1)).max(LEAST_SLOTS).min(touched.max(1));
        Self {
            tasks: [first, rows.div_ceil(ACT_ROWS), tasks(block.down.rows)],
            rows,
            slots,
            slot_bytes,
            converted,
            arranged,
            tiled,
        }
    }

    /// Range of token rows of an activation task, out of `rows`.
    pub fn act_rows(task: usize, rows: usize) -> std::ops::Range<usize> {
        rows.min(task * ACT_ROWS)..rows.min((task + 1) * ACT_ROWS)
    }
}

fn as_row(row: i64) -> i32 {
    i32::try_from(row).expect("rows of a batch fit ggml's 32 bits")
}
