//! A thread's part of a wave: claims tasks and computes them.
//!
//! Rounding is stock's: activations are converted with ggml's `from_float`; each output element is
//! one `vec_dot` (or a kernel of Terrace's own with the same bits), or comes from ggml's blocked
//! kernel where ggml itself would use it for that expert; and operations between the products are
//! computed by ggml's own functions, row by row.

use super::runs::{Run, Runs};
use super::sequence::{Entry, Item};
use super::work::{Shape, TASK_ROWS, Work};
use crate::block::{Block, Gated, INPUTS, Matrix, Place, Span};
use crate::kernels::{self, Group, RowKernel};
use crate::moe::activations::arrange_group;
use crate::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::ffi::{c_int, c_void};
use std::ops::Range;
use terrace_ggml::cpu::blocked::{BLOCKED_GROUP, ThreadShare};
use terrace_ggml::cpu::row_op::Operand;
use terrace_ggml::cpu::{RawTensor, Stop, custom_node};
use terrace_kernels::matmul::{Column, Product};

/// Columns that are multiplied with a panel of weights that was unpacked once.
const COLUMNS: usize = 256;

/// The state with which a thread computes a wave.
pub struct Stages<'a> {
    pub block: &'a Block,
    pub work: &'a Work,
    /// Converted inputs, by their numbers in [`Block::conversions`].
    pub inputs: [*mut c_void; INPUTS],
    /// The same, arranged for Terrace's own kernels.
    pub arranged: [*mut c_void; INPUTS],
    /// The same, quantised for Terrace's tiles.
    pub tiled: [*mut c_void; INPUTS],
    pub output: *mut c_void,
    /// Distance between output rows in bytes.
    pub output_row: usize,
    /// This thread's scratch for ggml's blocked kernel, or for tiles.
    pub blocked: *mut c_void,
    /// Number of threads.
    pub threads: usize,
    /// Ends the run.
    pub stop: &'a Stop,
    /// True in thread 0 where tasks are long enough to ask before each whether the run is to end.
    pub asks: bool,
}

/// A product's input: rows as Terrace's own kernels and tiles take them, and as ggml's kernels do.
#[derive(Clone, Copy)]
struct Input {
    arranged: *mut c_void,
    tiled: *mut c_void,
    converted: *mut c_void,
}

impl Stages<'_> {
    /// Returns true if the run is to end: what its tasks would compute is not used.
    fn is_void(&self) -> bool {
        if self.asks { self.stop.ask() } else { self.stop.is_set() }
    }

    /// Claims tasks until there are none left. If the run is to end, they count as computed, because other threads
    /// wait for them.
    pub fn compute(&self, entries: &[Entry], next_task: &AtomicUsize) {
        self.work.sequence(self.threads).compute(entries, next_task, |stage, index, task| {
            if self.is_void() {
                return;
            }
            let item = &self.work.items[index];
            match stage {
                0 => self.first(index, item, task),
                1 => self.activation(index, item, task),
                _ => self.down(index, item, task),
            }
        });
    }

    /// The scratch of an expert's intermediate values.
    fn slot(&self, item: &Item) -> *mut u8 {
        let Shape { slots, slot_bytes, .. } = self.work.shape;
        let slot = item.turn.load(Ordering::Relaxed) % slots;
        // In range, because the scratch was reserved for `slots` of them.
        self.work.scratch.as_ptr().cast::<u8>().wrapping_add(slot * slot_bytes)
    }

    /// The first row of a value in an expert's scratch, and the distance between rows in bytes.
    fn rows_of(&self, slot: *mut u8, span: Span) -> (*mut u8, usize) {
        let float = size_of::<f32>();
        let start = self.work.shape.rows * span.at * float + span.skip * float;
        (slot.wrapping_add(start), span.width * float)
    }

    fn first(&self, index: usize, item: &Item, mut task: usize) {
        let (first, inputs, _) = self.block.side(item.low.load(Ordering::Relaxed));
        let mut which = 0;
        loop {
            let tasks = first[which].rows.div_ceil(TASK_ROWS);
            if task < tasks {
                break;
            }
            task -= tasks;
            which += 1;
        }
        let matrix = &first[which];
        let span = Span { at: matrix.at, width: matrix.rows, skip: 0 };
        let (data, stride) = self.rows_of(self.slot(item), span);
        let pairs = self.work.pairs(&self.work.into_scratch, index);
        let number = inputs[which];
        let input = Input {
            arranged: self.arranged[number],
            tiled: self.tiled[number],
            converted: self.inputs[number],
        };
        for Run { rows, blocked } in self.runs(index, matrix) {
            let pairs = &pairs[rows];
            self.product(matrix, &item.weights[which], pairs, blocked, input, data.cast(), [stride, 0], task);
        }
    }

    fn activation(&self, index: usize, item: &Item, task: usize) {
        let shape = &self.work.shape;
        let pairs = self.work.routing.rows(index);
        let rows = Shape::act_rows(task, pairs.len());
        if rows.is_empty() {
            return;
        }
        let slot = self.slot(item);
        let from_row = |span: Span| {
            let (data, stride) = self.rows_of(slot, span);
            (data.wrapping_add(rows.start * stride), stride)
        };
        let expert = &self.work.routing.touched()[index];
        let gated = self.block.gated.as_ref();
        let by_ggml = gated.map_or(self.block.steps.len(), |gated| gated.from);
        for step in &self.block.steps[..by_ggml] {
            let operands = step.operands.map(|place| match place {
                Place::Graph => Operand::Unchanged,
                Place::Scratch(span) => {
                    let (data, stride) = from_row(span);
                    Operand::Rows { data: data.cast(), stride }
                }
                Place::Id => Operand::Id((&raw const *expert).cast()),
            });
            let (data, stride) = from_row(step.to);
            // SAFETY: the places are within the expert's scratch, as the block's layout says, in
            // this task's rows alone; other operands are biases, which are resident.
            unsafe { step.op.run(rows.len(), operands, data.cast(), stride) };
        }
        if let Some(gated) = gated {
            // SAFETY: as above.
            unsafe { gated.run(*expert as usize, rows.len(), from_row) };
        }
        let (data, stride) = from_row(gated.map_or(self.block.middle, Gated::result));
        let (_, _, down) = self.block.side(item.low.load(Ordering::Relaxed));
        let groups = RowKernel::groups(down.inner);
        for run in self.runs(index, down) {
            let kernel = down.own_kernel(run.blocked);
            for row in run.rows.start.max(rows.start)..run.rows.end.min(rows.end) {
                // SAFETY: the middle value's rows have `inner` floats; the converted and arranged rows were
                // reserved after the values.
                unsafe {
                    let from = data.add((row - rows.start) * stride).cast::<f32>();
                    if let Some(tile) = down.tile.as_ref().filter(|_| run.blocked) {
                        tile.quantise(from, slot.add(shape.tiled + row * tile.activation_bytes()));
                    } else if let Some(kernel) = kernel {
                        for group in 0..groups {
                            let to = slot.add(shape.arranged).cast::<Group>().add(row * groups + group);
                            arrange_group(kernel, from, down.inner, group, to);
                        }
                    } else {
                        let row = row * down.kernels.activation_bytes(down.inner);
                        let to = slot.add(shape.converted + row).cast();
                        kernels::convert(&down.kernels, from, to, down.inner);
                    }
                }
            }
        }
    }

    fn down(&self, index: usize, item: &Item, task: usize) {
        let pairs = self.work.pairs(&self.work.into_output, index);
        let (slot, shape) = (self.slot(item), &self.work.shape);
        let input = Input {
            arranged: slot.wrapping_add(shape.arranged).cast(),
            tiled: slot.wrapping_add(shape.tiled).cast(),
            converted: slot.wrapping_add(shape.converted).cast(),
        };
        let (_, _, matrix) = self.block.side(item.low.load(Ordering::Relaxed));
        let weights = &item.weights[self.block.first.len()];
        let strides = [self.output_row, 0];
        for Run { rows, blocked } in self.runs(index, matrix) {
            let pairs = &pairs[rows];
            self.product(matrix, weights, pairs, blocked, input, self.output, strides, task);
            if self.block.bias.is_some() || self.block.weights.is_some() {
                self.finish(index, pairs, self.weight_rows(matrix, blocked, task));
            }
        }
    }

    /// The weight rows that a task multiplies: its own, or with tiles and with ggml's blocked kernel the whole group that
    /// begins with them.
    fn weight_rows(&self, matrix: &Matrix, blocked: bool, task: usize) -> Range<usize> {
        let group = match &matrix.tile {
            Some(tile) if blocked => {
                // As many as a thread's share of the stage, if that is no more than suits the tiles.
                let stage = if self.block.is_down(matrix) { 1 } else { self.block.first.len() };
                let share = (matrix.rows * stage).div_ceil(self.threads).next_multiple_of(TASK_ROWS);
                let at_once = tile.rows_at_once();
                share.clamp(*at_once.start(), *at_once.end())
            }
            None if blocked => BLOCKED_GROUP,
            _ => TASK_ROWS,
        };
        let first = task * TASK_ROWS;
        if first.is_multiple_of(group) { first..matrix.rows.min(first + group) } else { 0..0 }
    }

    /// Adds an expert's bias to some elements of the results of `pairs`, and multiplies them by the router's weights, as the
    /// nodes after the block would.
    fn finish(&self, index: usize, pairs: &[[i32; 2]], elements: Range<usize>) {
        let expert = self.work.routing.touched()[index];
        // SAFETY: the block's tensors are alive during the run.
        let tensor = |tensor: Option<*mut RawTensor>| tensor.map(|tensor| unsafe { custom_node(tensor) });
        let bias = tensor(self.block.bias).map(|bias| {
            let row = bias.data().cast::<u8>().wrapping_add(expert as usize * bias.nb()[1]).cast::<f32>();
            // SAFETY: the table has a row for each expert, as wide as results.
            unsafe { std::slice::from_raw_parts(row.add(elements.start), elements.len()) }
        });
        let weights = tensor(self.block.weights).map(|weights| {
            let [_, top_k, ..] = weights.ne().map(|n| n.unsigned_abs() as usize);
            let [_, slot, token, _] = weights.nb();
            (weights.data().cast::<u8>(), top_k, slot, token)
        });
        for &[row, _] in pairs {
            let row = row.unsigned_abs() as usize;
            // SAFETY: this task has just written these elements of the row, and no other one does.
            let out = unsafe {
                let out = self.output.cast::<u8>().add(row * self.output_row).cast::<f32>();
                std::slice::from_raw_parts_mut(out.add(elements.start), elements.len())
            };
            if let Some(bias) = bias {
                out.iter_mut().zip(bias).for_each(|(element, bias)| *element += bias);
            }
            if let Some((first, top_k, slot, token)) = weights {
                let at = row % top_k * slot + row / top_k * token;
                // SAFETY: a weight for each slot and token, computed before the block.
                let weight = unsafe { first.add(at).cast::<f32>().read() };
                out.iter_mut().for_each(|element| *element *= weight);
            }
        }
    }

    /// An expert's rows, by the kernels that multiply them.
    fn runs(&self, index: usize, matrix: &Matrix) -> Runs<'_> {
        Runs::of(self.work.routing.rows(index), self.block.prompts.as_deref(), matrix.blocked_from)
    }

    /// Multiplies weight rows `rows` by tiles with rows of an expert, as [`Stages::product`].
    ///
    /// # Safety
    /// The weights are there, inputs quantised; pairs are within input and `dst`, and no other thread writes these
    /// elements.
    #[expect(clippy::too_many_arguments, reason = "a product and where its parts are")]
    unsafe fn tiles(
        &self,
        tile: &Product,
        weights: *const c_void,
        stride: usize,
        rows: Range<usize>,
        pairs: &[[i32; 2]],
        input: *const c_void,
        dst: *mut c_void,
        out_stride: usize,
    ) {
        let mut columns = [Column { input: std::ptr::null(), out: std::ptr::null_mut() }; COLUMNS];
        for pairs in pairs.chunks(COLUMNS) {
            for (column, &[a, b]) in columns.iter_mut().zip(pairs) {
                let (a, b) = (a.unsigned_abs() as usize, b.unsigned_abs() as usize);
                // SAFETY: the caller's contract.
                unsafe {
                    let input = input.cast::<u8>().add(b * tile.activation_bytes());
                    *column = Column { input, out: dst.cast::<u8>().add(a * out_stride).cast() };
                }
            }
            let columns = &columns[..pairs.len()];
            // SAFETY: the caller's contract; the scratch is this thread's.
            unsafe { tile.run(weights.cast(), stride, rows.clone(), columns, self.blocked.cast()) };
        }
    }

    /// Multiplies the weight rows of task `task` with rows of an expert: pair `[a, b]` multiplies row `b` of
    /// `input` and writes to row `a` of `dst`. `blocked`: with tiles or ggml's blocked kernel.
    #[expect(clippy::too_many_arguments, reason = "a product and where its parts are")]
    fn product(
        &self,
        matrix: &Matrix,
        weights: &AtomicPtr<c_void>,
        pairs: &[[i32; 2]],
        blocked: bool,
        input: Input,
        dst: *mut c_void,
        strides: [usize; 2],
        task: usize,
    ) {
        let weights = weights.load(Ordering::Relaxed);
        let first = task * TASK_ROWS;
        if let Some(kernel) = matrix.own_kernel(blocked) {
            let rows = self.weight_rows(matrix, false, task);
            // SAFETY: the expert holds `rows` rows of `stride` bytes and stays until the end of
            // the node; inputs are complete and arranged (the barrier, or the stage before);
            // pairs are within input and dst, and this task alone writes these elements.
            unsafe {
                let columns = pairs.iter().map(|&[a, b]| {
                    let (a, b) = (a.unsigned_abs() as usize, b.unsigned_abs() as usize);
                    let input = input.arranged.cast::<Group>().add(b * RowKernel::groups(matrix.inner));
                    (input.cast_const(), dst.cast::<u8>().add(a * strides[0]).cast::<f32>().add(first))
                });
                let weights = weights.cast::<u8>().add(first * matrix.stride);
                kernel.multiply(weights.cast(), matrix.stride, rows.len(), matrix.inner, columns);
            }
            return;
        }
        if let Some(tile) = matrix.tile.as_ref().filter(|_| blocked) {
            let rows = self.weight_rows(matrix, true, task);
            if !rows.is_empty() {
                // SAFETY: as above; inputs are quantised.
                unsafe {
                    self.tiles(tile, weights, matrix.stride, rows, pairs, input.tiled, dst, strides[0])
                };
            }
            return;
        }
        let input = input.converted;
        if blocked {
            if !self.weight_rows(matrix, true, task).is_empty() {
                let share =
                    ThreadShare { ith: first / BLOCKED_GROUP, nth: matrix.rows.div_ceil(BLOCKED_GROUP) };
                // SAFETY: the expert is leased until the end of the node; inputs are complete (the
                // barrier, or the stage before); every pair has a row of its own in dst, and tasks
                // other weight rows; the scratch is this thread's.
                unsafe {
                    matrix.blocked.compute(weights, pairs, input, dst, strides, self.blocked, share);
                }
            }
            return;
        }
        let length = c_int::try_from(matrix.inner).expect("a row's length");
        let input_row = matrix.kernels.activation_bytes(matrix.inner);
        for row in self.weight_rows(matrix, false, task) {
            // SAFETY: the expert holds `rows` rows of `stride` bytes.
            let weight = unsafe { weights.cast::<u8>().add(row * matrix.stride) };
            kernels::prefetch(weight, matrix.stride);
            for &[a, b] in pairs {
                let (a, b) = (a.unsigned_abs() as usize, b.unsigned_abs() as usize);
                // SAFETY: as above: pairs are within input and dst.
                unsafe {
                    let activation = input.cast::<u8>().add(b * input_row);
                    let out = dst.cast::<u8>().add(a * strides[0]).cast::<f32>();
                    *out.add(row) = matrix.kernels.dot(length, weight.cast(), activation.cast());
                }
            }
        }
    }
}
