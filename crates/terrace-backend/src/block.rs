//! Recognises an MoE block in a graph: products of one input with chosen experts, operations on
//! their rows, and one product back.
//!
//! Recognition relies on structure alone. Anything else is computed node by node.

use crate::kernels::{BLOCK, Group, RowKernel};
use crate::layout::{Cut, ManagedTensor};
use crate::passes::{BlockTokens, Passes, Prompts};
use crate::tiles::{expert_tile, in_layout, tiled_from};
use std::sync::Arc;
use terrace_ggml::cpu::blocked::BlockedProduct;
use terrace_ggml::cpu::row_op::RowOp;
use terrace_ggml::cpu::{Kernels, RawTensor};
use terrace_ggml::{DataType, Graph, Op, Tensor};
use terrace_kernels::matmul::Product;
use terrace_model::LayerId;
use terrace_store::BlockId;

/// Maximum number of matrices in a block: gate, up and down.
pub const MATRICES: usize = 3;
/// Maximum number of converted inputs of a block: of all matrices but the last, in full and in fewer
/// bits.
pub const INPUTS: usize = 2 * (MATRICES - 1);
/// Alignment of rows of scratch, in floats, which suits the kernels' wide loads.
const ALIGN: usize = 16;

/// A MUL_MAT_ID on experts that are managed or in memory, as found by the executor's scan.
#[derive(Clone, Copy)]
pub struct ExpertProduct {
    /// Index of the node in the graph.
    pub node: usize,
    /// Its weights; null if they are in memory and have no copies on devices.
    pub tensor: *const ManagedTensor,
    pub kernels: Kernels,
    /// Number of experts.
    pub experts: u32,
    /// True if the rows of its weights are interleaved.
    pub interleaved: bool,
}

/// One of a block's matrices.
#[derive(Clone, Copy)]
pub struct Matrix {
    /// See `ExpertProduct::tensor`.
    pub tensor: *const ManagedTensor,
    pub(crate) kernels: Kernels,
    pub(crate) blocked: BlockedProduct,
    /// Number of rows from which an expert is multiplied by tiles, or else by ggml's blocked kernel.
    pub(crate) blocked_from: usize,
    /// Terrace's tiles, which multiply experts with many rows in place of ggml's blocked kernel.
    pub(crate) tile: Option<Product>,
    /// Terrace's own kernel, which multiplies experts with fewer rows.
    pub(crate) row_kernel: Option<RowKernel>,
    /// Most rows of an expert: the graph's tokens.
    most_rows: usize,
    /// The weights. They are read at their address only if the block is
    /// [kept](Block::kept) in memory.
    pub weights: *mut RawTensor,
    /// Bytes from one weight row to the next.
    pub stride: usize,
    /// Weight rows, which is the number of output elements.
    pub rows: usize,
    /// Number of input elements.
    pub inner: usize,
    /// Bytes from one expert to the next.
    pub expert: usize,
    /// Offset of its result within a row of scratch, in floats. Unused for the last matrix.
    pub at: usize,
}

/// A row operation between the matrices.
pub struct Step {
    /// The operation.
    pub op: RowOp,
    /// Its operands; absent ones are of the graph.
    pub operands: [Place; 3],
    /// The place of the result within a row of scratch.
    pub to: Span,
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
        self.steps.push(Step { op, operands, to });
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

impl Matrix {
    /// The kernel of Terrace's own for few rows, if they are not multiplied in blocks.
    pub fn own_kernel(&self, blocked: bool) -> Option<&RowKernel> {
        self.row_kernel.as_ref().filter(|_| !blocked)
    }

    /// Returns true if ggml's kernels may multiply an expert, so that the input is converted for them.
    pub const fn converts(&self) -> bool {
        match self.tile {
            Some(_) => self.row_kernel.is_none() && self.blocked_from > 1,
            None => self.row_kernel.is_none() || self.most_rows >= self.blocked_from,
        }
    }

    /// Bytes of a row of `inner` input elements, converted for ggml's kernels; 0 if these are not used.
    pub fn converted_bytes(&self, inner: usize) -> usize {
        if self.converts() { self.kernels.activation_bytes(inner) } else { 0 }
    }

    /// Bytes of a row of `inner` input elements, arranged for Terrace's own kernel; 0 if there is none.
    pub fn arranged_bytes(&self, inner: usize) -> usize {
        self.row_kernel.map_or(0, |_| RowKernel::groups(inner) * size_of::<Group>())
    }

    /// The tiles, if an expert may have enough rows for them.
    pub fn used_tile(&self) -> Option<&Product> {
        self.tile.as_ref().filter(|_| self.most_rows >= self.blocked_from)
    }

    /// Bytes of a row of input elements, quantised for tiles; 0 if these are not used.
    pub fn tiled_bytes(&self, _: usize) -> usize {
        self.used_tile().map_or(0, Product::activation_bytes)
    }

    /// Returns true if these are its weights, and it multiplies by them interleaved.
    pub fn multiplies_interleaved(&self, weights: Tensor<'_>) -> bool {
        self.weights == weights.as_ptr() && self.tile.is_some_and(|tile| tile.takes_interleaved())
    }

    /// Returns true if the other matrix's input is converted in the same way.
    fn takes_input_of(&self, other: &Self) -> bool {
        self.kernels.activation_type() == other.kernels.activation_type()
            && self.converts() == other.converts()
            && match (self.used_tile(), other.used_tile()) {
                (Some(tile), Some(other)) => tile.shares_activations(other),
                (tile, other) => tile.is_none() && other.is_none(),
            }
            && self.row_kernel.map(|kernel| kernel.order()) == other.row_kernel.map(|kernel| kernel.order())
    }

    /// The same matrix in fewer bits, for a graph of one token; `None` if it has no such copy, or ggml
    /// has no kernel for it.
    fn in_fewer_bits(&self) -> Option<Self> {
        // SAFETY: the layout outlives the graph's call.
        let low = unsafe { (*self.tensor).low() }?;
        let kernels = Kernels::of(low.ty)?;
        // SAFETY: as above.
        let Cut::PerExpert { experts } = (unsafe { (*self.tensor).cut }) else { return None };
        let expert = usize::try_from(low.extent.len / u64::from(experts)).ok()?;
        let stride = expert / self.rows;
        let whole = self.inner.is_multiple_of(kernels.activation_block());
        let row_kernel = RowKernel::of(low.ty).filter(|_| self.inner.is_multiple_of(BLOCK));
        // An expert has one row, for which ggml's blocked kernel is never used.
        let (blocked_from, most_rows, tile) = (usize::MAX, 1, None);
        whole.then_some(Self { kernels, blocked_from, tile, row_kernel, most_rows, stride, expert, ..*self })
    }

    fn of(graph: &Graph<'_>, product: &ExpertProduct, at: usize, alone: bool, fast: bool) -> Self {
        let node = graph.node(product.node);
        let weights = node.src(0).expect("MUL_MAT_ID has weights");
        let [inner, rows, ..] = weights.ne().map(|d| d.unsigned_abs() as usize);
        let [_, stride, expert, _] = weights.nb();
        let blocked = BlockedProduct::of(node);
        let floats = node.src(1).is_some_and(|input| input.ty() == DataType::F32);
        // Tiles of any number of rows give each the bits that it has alone.
        let tile = (fast && floats).then(|| expert_tile(weights.ty(), inner)).flatten();
        let tile = tile.filter(|tile| !alone || tiled_from(tile) == 1);
        let tile = tile.and_then(|tile| in_layout(tile, product.interleaved));
        let blocked_from = match &tile {
            Some(tile) => tiled_from(tile),
            None if alone && !blocked.takes(1) => usize::MAX,
            None => blocked.from_rows(),
        };
        let row_kernel =
            RowKernel::of(weights.ty()).filter(|_| blocked_from > 1 && floats && inner.is_multiple_of(BLOCK));
        // An expert has one row per token at most.
        let most_rows = node.ne()[2].unsigned_abs() as usize;
        Self {
            tensor: product.tensor,
            kernels: product.kernels,
            blocked,
            blocked_from,
            tile,
            row_kernel,
            most_rows,
            weights: weights.as_ptr(),
            stride,
            rows,
            inner,
            expert,
            at,
        }
    }
}

#[cfg(test)]
mod tests;
