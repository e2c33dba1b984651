//! What is computed between a block's matrices, and where.

use crate::glu::Unit;
use terrace_ggml::cpu::RawTensor;
use terrace_ggml::cpu::row_op::RowOp;

/// A row operation between the matrices.
pub struct Step {
    /// The operation.
    pub op: RowOp,
    /// Its operands; absent ones are of the graph.
    pub operands: [Place; 3],
    /// The place of the result within a row of scratch.
    pub to: Span,
    /// The table in the graph from which it takes rows by the expert's id.
    pub(crate) table: Option<*mut RawTensor>,
    /// The unit that it is, if kernels of Terrace's own compute such.
    pub(crate) glu: Option<Unit>,
}

impl Step {
    /// The place and the table of a sum of rows of scratch with the expert's row of a table.
    pub(crate) fn bias(&self) -> Option<(Span, *mut RawTensor)> {
        match (self.operands, self.table) {
            ([Place::Scratch(of), Place::Graph, Place::Id], Some(table)) => Some((of, table)),
            _ => None,
        }
    }
}

/// Place of a step's operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In the graph, the same for all rows; also stands for an absent operand.
    Graph,
    /// In a row of scratch.
    Scratch(Span),
    /// The expert's id.
    Id,
}

/// A value within a row of scratch. Its rows are `width` floats apart, and it begins `skip` floats
/// into its row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// Offset at which the value (or the value that it is part of) begins, in floats per row.
    pub at: usize,
    /// Floats from one row to the next.
    pub width: usize,
    /// Floats before it, if it is a view of a part.
    pub skip: usize,
}
