//! Converts a block of the graph into a recipe for a lane.

use terrace_backend::{Block, Place, Span};
use terrace_ggml::devices::experts::{Recipe, RowSpan, Source, Step};
use terrace_store::BlockId;

/// The value that was written last at each place in a row of the block's scratch.
struct Values(Vec<(usize, RowSpan)>);

impl Values {
    /// Adds a value at this place.
    fn add(&mut self, to: Span, width: usize) -> Result<(), &'static str> {
        let value = self.0.len();
        if to.skip != 0 || width != to.width {
            return Err("its block writes part of a row");
        }
        self.0.push((to.at, RowSpan { value, skip: 0, width }));
        Ok(())
    }

    /// Finds an operand of `width` elements.
    fn find(&self, span: Span, width: usize) -> Result<RowSpan, &'static str> {
        let found = self.0.iter().rev().find(|(at, _)| *at == span.at);
        let (_, part) = found.ok_or("its block reads a value that it has not computed")?;
        if span.skip + width > part.width {
            return Err("its block reads past the end of a row");
        }
        Ok(RowSpan { skip: span.skip, width, ..*part })
    }
}

const OTHER_TENSORS: &str = "its graph uses expert tensors that its slots do not hold";

/// The recipe of a block, over slots for the matrices whose first blocks are `matrices`. The error
/// says why a lane cannot compute it.
pub fn recipe_of(block: &Block, matrices: &[BlockId]) -> Result<Recipe, &'static str> {
    let index = |first: BlockId| matrices.iter().position(|other| *other == first);
    if block.matrices().count() != matrices.len() {
        return Err(OTHER_TENSORS);
    }
    // SAFETY: the layout outlives the graph's call.
    let mut all = block.matrices().map(|matrix| index(unsafe { (*matrix.tensor).block(0) }));
    let mut first = Vec::with_capacity(block.first.len());
    let mut values = Values(Vec::with_capacity(block.first.len() + block.steps.len()));
    for matrix in &block.first {
        first.push(all.next().flatten().ok_or(OTHER_TENSORS)?);
        values.add(Span { at: matrix.at, width: matrix.rows, skip: 0 }, matrix.rows)?;
    }
    let down = all.next().flatten().ok_or(OTHER_TENSORS)?;
    let mut steps = Vec::with_capacity(block.steps.len());
    let mut tables = Vec::new();
    for step in &block.steps {
        let mut sources = Vec::with_capacity(step.operands.len());
        for (i, place) in step.operands.iter().enumerate() {
            let Some(width) = step.op.operand_width(i) else { continue };
            match place {
                Place::Scratch(span) => sources.push(Source::Part(values.find(*span, width)?)),
                Place::Graph => {
                    tables.push(step.op.table(i).ok_or("its expert biases are not rows of 32-bit floats")?);
                    sources.push(Source::Table(tables.len() - 1));
                }
                Place::Id => sources.push(Source::Expert),
            }
        }
        values.add(step.to, step.op.width())?;
        steps.push(Step::new(&step.op, sources));
    }
    let middle = values.find(block.middle, block.down.inner)?;
    Ok(Recipe { first, steps, middle, down, tables })
}
