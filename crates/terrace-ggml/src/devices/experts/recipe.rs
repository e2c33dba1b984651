//! The computation of an MoE block for one pair, as plain data.

use crate::cpu::row_op::{RowOp, Table};
use llama_cpp_sys_2 as sys;

/// A block: products of the input, operations on their rows, one product back.
///
/// Values are numbered: first those of `first`, in order, then one for each step.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// Indices of the matrices that multiply the input.
    pub first: Vec<usize>,
    /// The operations in between, in order.
    pub steps: Vec<Step>,
    /// The input of the last matrix.
    pub middle: RowSpan,
    /// Index of the last product's matrix.
    pub down: usize,
    /// Tables from which steps take rows by the expert's id: biases.
    pub tables: Vec<Table>,
}

/// A row operation, with its parameters in the model's graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub(super) op: sys::ggml_op,
    pub(super) params: [i32; 16],
    /// Number of elements in an output row.
    pub(super) width: i64,
    pub(super) sources: Vec<Source>,
}

/// An operand of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    /// A value's row, or a part of it.
    Part(RowSpan),
    /// One of the recipe's tables.
    Table(usize),
    /// The expert's id.
    Expert,
}

/// A part of each row of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowSpan {
    /// Index of the value.
    pub value: usize,
    /// Elements before it.
    pub skip: usize,
    /// Elements in it.
    pub width: usize,
}

impl Step {
    /// Makes a step of this operation with other operands.
    pub fn new(op: &RowOp, sources: Vec<Source>) -> Self {
        let (op, params, width) = op.description();
        Self { op, params, width, sources }
    }
}
