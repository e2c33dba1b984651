//! What an MoE block computes for one pair, as plain data.

use crate::row_op::{RowOp, Table};
use llama_cpp_sys_2 as sys;

/// A block: products of the input, operations on their rows, one product back.
///
/// Values are numbered: first those of `first`, in order, then one for each step.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// The slots' matrices that the input is multiplied with.
    pub first: Vec<usize>,
    /// In between, in order.
    pub steps: Vec<Step>,
    /// What goes into the last matrix.
    pub middle: Part,
    /// The slots' matrix of the last product.
    pub down: usize,
    /// Rows of every expert, which steps take by the expert's id: biases.
    pub tables: Vec<Table>,
}

/// A row operation with the parameters that the model's graph has.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub(super) op: sys::ggml_op,
    pub(super) params: [i32; 16],
    /// Elements of a row that comes out.
    pub(super) width: i64,
    pub(super) sources: Vec<Source>,
}

/// An operand of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    /// A value's row, or a part of it.
    Part(Part),
    /// One of the recipe's tables.
    Table(usize),
    /// The expert's id.
    Expert,
}

/// A part of each row of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of the value.
    pub value: usize,
    /// Elements before it.
    pub skip: usize,
    /// Elements in it.
    pub width: usize,
}

impl Step {
    /// The operation, on other operands.
    pub fn new(op: &RowOp, sources: Vec<Source>) -> Self {
        let (op, params, width) = op.description();
        Self { op, params, width, sources }
    }
}
