//! The computation of an MoE block for one pair, as plain data.

use crate::cpu::row_op::{RowOp, Table};
use llama_cpp_sys_2 as sys;
use std::ops::Range;

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
    pub middle: Part,
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
    Part(Part),
    /// One of the recipe's tables.
    Table(usize),
    /// The expert's id.
    Expert,
}

/// A part of each row of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Index of the value.
    pub value: usize,
    /// Elements before it.
    pub skip: usize,
    /// Elements in it.
    pub width: usize,
}

impl Recipe {
    /// The recipe for `range` of the `all` elements of the FFN dimension; its last product is a
    /// summand of the whole one. All operations compute each element independently ([`RowOp::of`]),
    /// so a slice of the input gives a slice of the output. `None` if the length of a row between
    /// the products is not a multiple of `all`.
    pub fn slice(&self, range: &Range<usize>, all: usize) -> Option<Self> {
        let times = |elements: usize| elements.is_multiple_of(all).then_some(elements / all * range.len());
        let part =
            |part: Part| Some(Part { value: part.value, skip: times(part.skip)?, width: times(part.width)? });
        let step = |step: &Step| {
            let sources = step.sources.iter().map(|source| match *source {
                Source::Part(of) => part(of).map(Source::Part),
                other => Some(other),
            });
            let width = i64::try_from(times(usize::try_from(step.width).ok()?)?).ok()?;
            Some(Step { width, sources: sources.collect::<Option<_>>()?, ..step.clone() })
        };
        let table = |table: &Table| {
            let width = times(table.width)?;
            let parts = table.values.chunks_exact(all).flat_map(|part| &part[range.clone()]);
            Some(Table { width, values: parts.copied().collect() })
        };
        Some(Self {
            first: self.first.clone(),
            steps: self.steps.iter().map(step).collect::<Option<_>>()?,
            middle: part(self.middle)?,
            down: self.down,
            tables: self.tables.iter().map(table).collect::<Option<_>>()?,
        })
    }
}

impl Step {
    /// Makes a step of this operation with other operands.
    pub fn new(op: &RowOp, sources: Vec<Source>) -> Self {
        let (op, params, width) = op.description();
        Self { op, params, width, sources }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn step(width: i64, sources: Vec<Source>) -> Step {
        Step { op: sys::GGML_OP_GLU, params: [0; 16], width, sources }
    }

    #[test]
    fn slices_are_scaled_down() {
        // Gate and up in one matrix of 2 * 6 rows, with biases of two experts.
        let tables = vec![Table { width: 12, values: (0u8..24).map(f32::from).collect() }];
        let whole = Part { value: 0, skip: 0, width: 12 };
        let up = Part { value: 1, skip: 6, width: 6 };
        let recipe = Recipe {
            first: vec![0],
            steps: vec![
                step(12, vec![Source::Part(whole), Source::Table(0), Source::Expert]),
                step(6, vec![Source::Part(Part { skip: 0, ..up }), Source::Part(up)]),
            ],
            middle: Part { value: 2, skip: 0, width: 6 },
            down: 1,
            tables,
        };
        let slice = recipe.slice(&(2..4), 6).unwrap();
        assert_eq!([slice.steps[0].width, slice.steps[1].width], [4, 2]);
        assert_eq!(slice.steps[0].sources[0], Source::Part(Part { value: 0, skip: 0, width: 4 }));
        assert_eq!(slice.steps[1].sources[1], Source::Part(Part { value: 1, skip: 2, width: 2 }));
        assert_eq!(slice.middle, Part { value: 2, skip: 0, width: 2 });
        let rows = [2.0, 3.0, 8.0, 9.0, 14.0, 15.0, 20.0, 21.0];
        assert_eq!(slice.tables, [Table { width: 4, values: rows.to_vec() }]);
        assert_eq!(recipe.slice(&(0..6), 6).unwrap(), recipe);
        // Rows whose length is not a multiple of the FFN dimension.
        assert_eq!(recipe.slice(&(0..5), 5), None);
    }
}
