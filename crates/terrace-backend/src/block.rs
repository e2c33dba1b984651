//! Recognises an MoE block in a graph: products of one input with chosen experts, operations on
//! their rows, and one product back.
//!
//! Recognition relies on structure alone. Anything else is computed node by node.

mod gated;
mod matrix;
mod steps;

pub(crate) use gated::Gated;
pub use matrix::{ExpertProduct, Matrix};
pub use steps::{Place, Span, Step};

use crate::glu::Unit;
use crate::passes::{BlockTokens, Passes, Prompts};
use std::sync::Arc;
use terrace_ggml::cpu::RawTensor;
use terrace_ggml::cpu::row_op::RowOp;
use terrace_ggml::{DataType, Graph, Op, Tensor};
use terrace_model::LayerId;
use terrace_store::BlockId;

/// Maximum number of matrices in a block: gate, up and down.
pub const MATRICES: usize = 3;
/// Maximum number of converted inputs of a block: of all matrices but the last, in full and in fewer
/// bits.
pub const INPUTS: usize = 2 * (MATRICES - 1);
/// Alignment of rows of scratch, in floats, which suits the kernels' wide loads.
const ALIGN: usize = 16;

/// An MoE block. Its tensors belong to the graph and are valid for the call that lends it.
pub struct Block {
    /// The router's choice, `[top_k, tokens]`.
    pub ids: *mut RawTensor,
    pub input: *mut RawTensor,
    pub(crate) experts: u32,
    /// True if its experts stay in memory, instead of coming from the store.
    pub kept: bool,
    /// The prompts that its tokens are of, if each gets the bits of a pass of its own.
    pub prompts: Option<Arc<Prompts>>,
    /// The matrices that multiply the input.
    pub first: Vec<Matrix>,
    /// The matrix that produces the output.
    pub down: Matrix,
    /// The same matrices in fewer bits, if some of the experts may be read so.
    pub low: Option<Low>,
    /// In between, in order.
    pub steps: Vec<Step>,
    /// The input of the last matrix.
    pub middle: Span,
    /// The last steps, if one kernel of Terrace's own computes them.
    pub(crate) gated: Option<Gated>,
    /// For each of the first matrices, the index of the one whose converted input it uses: its own,
    /// or an earlier one's.
    pub inputs: [usize; MATRICES - 1],
    /// Floats of scratch per row.
    pub floats: usize,
    /// A row for each expert that is added to its results, `[width, experts]`, if the block has such.
    pub bias: Option<*mut RawTensor>,
    /// Factors of the result's rows, `[1, top_k, tokens]`, if the block has some.
    pub weights: Option<*mut RawTensor>,
    /// Nodes that no longer need to run, and the node in whose place the block runs.
    pub replaced: Vec<usize>,
    pub(crate) last: usize,
}

/// A value that must not be visible outside the block.
struct Value<'g> {
    tensor: Tensor<'g>,
    span: Span,
    /// Number of times that it is an operand of the block's nodes.
    uses: usize,
}

/// The values found so far.
struct Values<'g> {
    all: Vec<Value<'g>>,
    shape: [i64; 2],
    floats: usize,
}

impl<'g> Values<'g> {
    fn find(&mut self, tensor: Tensor<'g>) -> Option<&mut Value<'g>> {
        self.all.iter_mut().find(|value| value.tensor == tensor)
    }

    /// Returns true if the tensor shares memory with one of the block's values.
    fn touches(&self, tensor: Tensor<'g>) -> bool {
        self.all.iter().any(|value| value.tensor.storage() == tensor.storage())
    }

    /// Returns true if the tensor has one row for each pair of slot and token.
    fn is_rows(&self, tensor: Tensor<'g>) -> bool {
        let [_, slots, tokens, rest] = tensor.ne();
        tensor.ty() == DataType::F32
            && [slots, tokens] == self.shape
            && rest == 1
            && tensor.nb()[0] == size_of::<f32>()
    }

    /// Adds a value, with a place of its own or, if it overwrites what it views, with that value's
    /// place.
    fn add(&mut self, tensor: Tensor<'g>) -> Option<Span> {
        if !self.is_rows(tensor) {
            return None;
        }
        let span = if tensor.storage() == tensor {
            let width = usize::try_from(tensor.ne()[0]).ok()?;
            let span = Span { at: self.floats, width, skip: 0 };
            self.floats += width.next_multiple_of(ALIGN);
            span
        } else {
            self.view(tensor)?
        };
        self.all.push(Value { tensor, span, uses: 0 });
        Some(span)
    }

    /// The place of a view of whole rows, or of the same part of every row.
    fn view(&mut self, tensor: Tensor<'g>) -> Option<Span> {
        let storage = tensor.storage();
        let span = self.find(storage)?.span;
        let [_, row, token, _] = tensor.nb();
        let [_, storage_row, storage_token, _] = storage.nb();
        let skip = tensor.view_offset() / size_of::<f32>();
        let inside = skip + usize::try_from(tensor.ne()[0]).ok()? <= span.width;
        let same_rows = row == storage_row && token == storage_token;
        (same_rows && inside && tensor.view_offset().is_multiple_of(size_of::<f32>()) && self.is_rows(tensor))
            .then_some(Span { skip, ..span })
    }

    /// Counts a use of an operand, and returns its place.
    fn operand(&mut self, operand: Tensor<'g>) -> Option<Span> {
        let value = self.find(operand)?;
        value.uses += 1;
        Some(value.span)
    }
}

impl Block {
    /// Recognises the block of these products, which are all that share one ids tensor, in the
    /// graph's order. `fast`: kernels may add in an order of their own. `has_bytes` says whether a tensor's
    /// bytes are at its address when the block runs.
    pub fn recognise<'g>(
        graph: &Graph<'g>,
        products: &[ExpertProduct],
        passes: &Passes,
        fast: bool,
        has_bytes: impl Fn(Tensor<'g>) -> bool,
    ) -> Option<Self> {
        let (down, first) = products.split_last()?;
        if first.is_empty() || products.len() > MATRICES {
            return None;
        }
        let head = graph.node(first[0].node);
        let (input, ids) = (head.src(1)?, head.src(2)?);
        let [top_k, tokens, ..] = ids.ne();
        let BlockTokens { alone, prompts } = passes.in_block(usize::try_from(tokens).ok()?)?;
        let mut values = Values { all: Vec::with_capacity(8), shape: [top_k, tokens], floats: 0 };
        let mut block = Self {
            ids: ids.as_ptr(),
            input: input.as_ptr(),
            experts: down.experts,
            kept: false,
            prompts,
            first: Vec::with_capacity(MATRICES - 1),
            down: Matrix::of(graph, down, 0, alone, fast),
            low: None,
            steps: Vec::with_capacity(4),
            middle: Span::default(),
            gated: None,
            inputs: [0, 1],
            floats: 0,
            bias: None,
            weights: None,
            replaced: Vec::with_capacity(8),
            last: down.node,
        };
        // What the block reads from the graph when it runs, in the place of its last product.
        let mut reads = vec![input, ids];
        for i in first[0].node..=down.node {
            let node = graph.node(i);
            if let Some(product) = first.iter().find(|product| product.node == i) {
                // All take the same rows.
                if node.src(1)? != input || product.experts != block.experts {
                    return None;
                }
                let span = values.add(node)?;
                block.first.push(Matrix::of(graph, product, span.at, alone, fast));
                block.replaced.push(i);
            } else if i == down.node {
                block.middle = values.operand(node.src(1)?)?;
                if block.middle.width - block.middle.skip < block.down.inner || !values.is_rows(node) {
                    return None;
                }
            } else if node.sources().any(|source| values.touches(source)) {
                let table = block.step(&mut values, node)?;
                if let Some(table) = table.filter(|&table| !has_bytes(table)) {
                    tracing::debug!(
                        bias = table.name(),
                        "an MoE block is not fused: the bias is not in memory"
                    );
                    return None;
                }
                reads.extend(table);
                block.replaced.push(i);
            }
        }
        let written = (first[0].node..down.node)
            .filter(|i| !block.replaced.contains(i))
            .map(|i| graph.node(i))
            .find(|node| !node.op().is_view() && reads.iter().any(|&read| shares_memory(*node, read)));
        if let Some(node) = written {
            tracing::debug!(
                node = node.name(),
                "an MoE block is not fused: a node within writes to its input"
            );
            return None;
        }
        block.floats = values.floats;
        if fast {
            block.gate();
        }
        if let [a, b] = &block.first[..]
            && a.takes_input_of(b)
        {
            block.inputs = [0, 0];
        }
        let private =
            |value: &Value<'_>| !value.tensor.is_output() && graph.uses(value.tensor) == Some(value.uses);
        // Rows must be dense, so that a pair's place follows from its number.
        let [_, row, token, _] = graph.node(down.node).nb();
        let dense = token == row * usize::try_from(top_k).ok()?;
        (dense && values.all.iter().all(private)).then_some(block)
    }

    /// Has a kernel of Terrace's own compute the last steps, if it can. Their results take no scratch then.
    fn gate(&mut self) {
        let Some(gated) = Gated::of(&self.steps, self.middle) else { return };
        let of_first = self.first.iter().map(|matrix| (matrix.at, matrix.rows));
        let left = self.steps[..gated.from].iter().map(|step| (step.to.at, step.to.width));
        self.floats =
            of_first.chain(left).map(|(at, width)| at + width.next_multiple_of(ALIGN)).max().unwrap_or(0);
        self.gated = Some(gated);
    }

    /// Takes in what is done to its result: a bias of each expert, and the product with the router's weights, if these are the
    /// next nodes and the only uses. `has_bytes`: as for [`Block::recognise`].
    pub fn take_in_results(&mut self, graph: &Graph<'_>, has_bytes: impl Fn(Tensor<'_>) -> bool) {
        if let Some((node, bias)) = self.next_use(graph, Op::ADD_ID) {
            let [width, experts, rest @ ..] = bias.ne();
            let rows = [width, experts] == [graph.node(node).ne()[0], i64::from(self.experts)];
            let of_floats = bias.ty() == DataType::F32 && bias.nb()[0] == size_of::<f32>() && rest == [1, 1];
            let ids = graph.node(node).src(2).is_some_and(|ids| ids.as_ptr() == self.ids);
            if rows && of_floats && ids && has_bytes(bias) {
                self.bias = Some(bias.as_ptr());
                self.end_with(node);
            }
        }
        if let Some((node, weights)) = self.next_use(graph, Op::MUL) {
            let [_, top_k, tokens, rest] = graph.node(node).ne();
            if weights.ty() == DataType::F32 && weights.ne() == [1, top_k, tokens, rest] && rest == 1 {
                self.weights = Some(weights.as_ptr());
                self.end_with(node);
            }
        }
    }

    /// The next node, and its other operand, if it is such an operation on the result, which nothing else uses, and its result
    /// has the same form.
    fn next_use<'g>(&self, graph: &Graph<'g>, op: Op) -> Option<(usize, Tensor<'g>)> {
        let result = graph.node(self.last);
        let next = (self.last + 1..graph.len()).find(|&i| !graph.node(i).op().is_view())?;
        let node = graph.node(next);
        let (of, other) = node.src(0).zip(node.src(1))?;
        // A pair's place follows from its number.
        let like = node.ne() == result.ne() && node.nb() == result.nb() && node.ty() == DataType::F32;
        let only = of == result && !result.is_output() && graph.uses(result) == Some(1);
        let first = self.replaced.iter().copied().min().unwrap_or(self.last);
        let mut foreign = (first..self.last).filter(|i| !self.replaced.contains(i)).map(|i| graph.node(i));
        let kept = !foreign.any(|node| !node.op().is_view() && shares_memory(node, other));
        (node.op() == op && like && only && kept).then_some((next, other))
    }

    /// Has it run in the place of a later node.
    fn end_with(&mut self, node: usize) {
        self.replaced.push(self.last);
        self.last = node;
    }

    /// Returns true if it stands for this node of the graph.
    pub fn contains(&self, node: usize) -> bool {
        self.last == node || self.replaced.contains(&node)
    }

    /// Its matrices: the first ones, then the last.
    pub fn matrices(&self) -> impl Iterator<Item = &Matrix> {
        self.first.iter().chain([&self.down])
    }

    /// Returns true if this is its last matrix, in full or in fewer bits.
    pub fn is_down(&self, matrix: &Matrix) -> bool {
        let low = self.low.as_ref().map(|low| &low.down);
        [Some(&self.down), low].into_iter().flatten().any(|down| std::ptr::eq(down, matrix))
    }

    /// The first block of each of its matrices; nothing if they are in memory and have no copies.
    pub fn first_blocks(&self) -> impl Iterator<Item = BlockId> {
        // SAFETY: null, or in the layout, which outlives the graph's call.
        self.matrices()
            .filter_map(move |matrix| unsafe { matrix.tensor.as_ref() }.map(|tensor| tensor.block(0)))
    }

    /// Its layer; `None` if its matrices are in memory and have no copies, or their names have no layer.
    pub fn layer(&self) -> Option<LayerId> {
        // SAFETY: null, or in the layout, which outlives the graph's call.
        unsafe { self.down.tensor.as_ref() }.and_then(|tensor| tensor.layer)
    }

    /// The first block of each of its matrices in fewer bits; nothing if there are none.
    pub fn first_low_blocks(&self) -> impl Iterator<Item = BlockId> {
        let low = self.low.iter().flat_map(|low| low.first.iter().chain([&low.down]));
        // SAFETY: the layout outlives the graph's call.
        low.filter_map(|matrix| unsafe { (*matrix.tensor).low() }.map(|low| low.block(0)))
    }

    /// The converted inputs that its first matrices use, each with its number and one that uses it.
    pub fn conversions(&self) -> impl Iterator<Item = (usize, &Matrix)> {
        let full = self.first.iter().zip(self.inputs).enumerate();
        let low = self.low.iter().flat_map(|low| low.first.iter().zip(low.inputs).enumerate());
        let low = low.map(|(i, of)| (i + MATRICES - 1, of));
        full.chain(low).filter(|(i, (_, input))| i == input).map(|(i, (matrix, _))| (i, matrix))
    }

    /// The first matrices, the converted inputs that they use, and the last matrix: those in fewer bits,
    /// if there are any, or in full.
    pub fn side(&self, low: bool) -> (&[Matrix], [usize; MATRICES - 1], &Matrix) {
        match self.low.as_ref().filter(|_| low) {
            Some(low) => (&low.first, low.inputs, &low.down),
            None => (&self.first, self.inputs, &self.down),
        }
    }

    /// Adds a node between the products. Returns the table that it reads from the graph, if there is
    /// one.
    fn step<'g>(&mut self, values: &mut Values<'g>, node: Tensor<'g>) -> Option<Option<Tensor<'g>>> {
        if node.op().is_view() {
            let span = values.view(node)?;
            // Use counts include the source of a view.
            values.find(node.src(0)?)?.uses += 1;
            values.all.push(Value { tensor: node, span, uses: 0 });
            return Some(None);
        }
        let op = RowOp::of(node)?;
        let mut table = None;
        let mut operands = [Place::Graph; 3];
        for (i, operand) in operands.iter_mut().enumerate() {
            let Some(source) = node.src(i) else { continue };
            *operand = if values.touches(source) {
                Place::Scratch(values.operand(source)?)
            } else if node.op() == Op::ADD_ID && i == 1 {
                table = Some(source);
                Place::Graph
            } else if node.op() == Op::ADD_ID && i == 2 && source.as_ptr() == self.ids {
                Place::Id
            } else {
                return None;
            };
        }
        let to = values.add(node)?;
        self.steps.push(Step { op, operands, to, table: table.map(Tensor::as_ptr), glu: Unit::of(node) });
        Some(table)
    }
}

/// A block's matrices in fewer bits.
pub struct Low {
    pub first: Vec<Matrix>,
    pub down: Matrix,
    /// As [`Block::inputs`]; the numbers from [`MATRICES`]` - 1` on are those of these matrices.
    pub inputs: [usize; MATRICES - 1],
}

impl Low {
    /// The matrices of this block of one token in fewer bits, if all have such a copy that its input can
    /// be converted for.
    pub fn of(block: &Block) -> Option<Self> {
        let first: Vec<Matrix> = block.first.iter().map(Matrix::in_fewer_bits).collect::<Option<_>>()?;
        let down = block.down.in_fewer_bits()?;
        let all = || block.first.iter().zip(block.inputs).enumerate();
        let mut inputs = [MATRICES - 1, MATRICES];
        for (i, matrix) in first.iter().enumerate() {
            let own = i + MATRICES - 1;
            let full = all().find(|(i, (other, input))| i == input && matrix.takes_input_of(other));
            let earlier = first[..i].iter().position(|other| matrix.takes_input_of(other));
            inputs[i] = match (full, earlier) {
                (Some((i, _)), _) => i,
                (None, Some(earlier)) => inputs[earlier],
                (None, None) => own,
            };
        }
        Some(Self { first, down, inputs })
    }
}

/// Returns true if the tensors' bytes overlap. Memory is given to a later node once the last use of a tensor
/// is over, so two tensors may have the same address.
fn shares_memory(a: Tensor<'_>, b: Tensor<'_>) -> bool {
    let range = |tensor: Tensor<'_>| {
        let from = tensor.data() as usize;
        (from, from + tensor.bytes())
    };
    let ((a, a_end), (b, b_end)) = (range(a), range(b));
    a < b_end && b < a_end
}

#[cfg(test)]
mod tests;
