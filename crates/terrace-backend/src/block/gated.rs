//! The end of a block's steps as one: a gated linear unit, and the biases that its operands get before.

use super::steps::{Place, Span, Step};
use terrace_ggml::cpu::{RawTensor, custom_node};
use terrace_kernels::glu::{Glu, GluRow};

/// A gated linear unit whose result is the last matrix's input. The result takes the gates' place.
pub struct Gated {
    glu: Glu,
    /// Number of elements of a result.
    width: usize,
    /// The step from which on it stands for all.
    pub from: usize,
    /// The gates, and what they multiply.
    operands: [Operand; 2],
}

/// Rows of a block's scratch, to which a row for each expert may be added.
#[derive(Clone, Copy)]
struct Operand {
    rows: Span,
    bias: Option<Bias>,
}

#[derive(Clone, Copy)]
struct Bias {
    /// `[width, experts]`, in the graph.
    table: *mut RawTensor,
    /// Elements of a row before the first that is added.
    skip: usize,
}

impl Gated {
    /// The unit that a block's steps end with, if `middle` is its result.
    pub fn of(steps: &[Step], middle: Span) -> Option<Self> {
        let (last, before) = steps.split_last()?;
        let unit = last.glu.filter(|_| last.to == middle)?;
        let [gate, up] = unit.inputs.map(|(operand, skip)| match last.operands[operand] {
            Place::Scratch(of) => Some(Operand { rows: Span { skip: of.skip + skip, ..of }, bias: None }),
            Place::Graph | Place::Id => None,
        });
        let mut gated = Self { glu: unit.glu, width: unit.width, from: before.len(), operands: [gate?, up?] };
        while let Some(step) = before[..gated.from].last().filter(|step| gated.takes_in(step)) {
            let Some((of, table)) = step.bias() else { break };
            for operand in gated.operands.iter_mut().filter(|operand| operand.rows.at == step.to.at) {
                let skip = operand.rows.skip - step.to.skip;
                operand.bias = Some(Bias { table, skip });
                operand.rows = Span { skip: of.skip + skip, ..of };
            }
            gated.from -= 1;
        }
        Some(gated)
    }

    /// Returns true if the step's result is an operand that nothing is added to yet, or has both within.
    fn takes_in(&self, step: &Step) -> bool {
        let added = step.to.skip..step.to.skip + step.op.width();
        let whole = |operand: &Operand| {
            let rows = operand.rows;
            operand.bias.is_none() && added.start <= rows.skip && rows.skip + self.width <= added.end
        };
        let mut of_step = self.operands.iter().filter(|operand| operand.rows.at == step.to.at).peekable();
        of_step.peek().is_some() && of_step.all(whole)
    }

    /// The place of the result: the gates'.
    pub const fn result(&self) -> Span {
        self.operands[0].rows
    }

    /// Computes `rows` rows of expert `expert`; `first` is where the first row of a place of its scratch is, with the
    /// distance between rows in bytes.
    ///
    /// # Safety
    /// The scratch has the block's layout and the operands' values, and no other thread uses the rows. The tables are
    /// there, and have a row for the expert.
    pub unsafe fn run(&self, expert: usize, rows: usize, first: impl Fn(Span) -> (*mut u8, usize)) {
        let biases = self.operands.map(|operand| {
            operand.bias.map_or(std::ptr::null(), |bias| {
                // SAFETY: the graph's, which is alive during the run.
                let table = unsafe { custom_node(bias.table) };
                let row = table.data().cast::<u8>().wrapping_add(expert * table.nb()[1]);
                row.cast::<f32>().wrapping_add(bias.skip).cast_const()
            })
        });
        let places = self.operands.map(|operand| first(operand.rows));
        for row in 0..rows {
            let [gate, up] = places.map(|(data, stride)| data.wrapping_add(row * stride).cast::<f32>());
            // SAFETY: the caller's contract.
            unsafe { self.glu.run(GluRow { gate, up, biases, out: gate }, self.width) };
        }
    }
}
