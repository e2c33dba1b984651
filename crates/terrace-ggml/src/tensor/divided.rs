//! A graph in which some nodes are replaced by several that compute a part of its tokens each.
//!
//! ggml computes a product with one column by dot products, one with several by other kernels that
//! round otherwise. A node that is divided gives the bits of nodes with as many tokens as the parts.

use super::data_type::DataType;
use super::graph::Graph;
use super::node::Tensor;
use super::op::Op;
use crate::pin::abi;
use llama_cpp_sys_2 as sys;
use std::collections::HashMap;
use std::ffi::c_int;
use std::ops::Range;

/// Division of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// Ranges of the node's tokens, which together are all of them.
    pub parts: Vec<Range<usize>>,
    /// Dimension of the tokens.
    pub along: Along,
}

impl Division {
    /// Parts of `each` of `tokens` tokens; the last one may have fewer.
    ///
    /// # Panics
    /// If `each` is 0.
    pub fn by(tokens: usize, each: usize, along: Along) -> Self {
        let parts = (0..tokens).step_by(each).map(|first| first..tokens.min(first + each)).collect();
        Self { parts, along }
    }
}

/// The dimensions in which a node has its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Along {
    /// Dimension 1 of the input or the queries: tokens of one sequence.
    Columns,
    /// Dimension 3 of the input, or of queries, keys, values and mask, are sequences with caches of their own,
    /// dimension 1 of input, queries and mask `each` tokens of every sequence. A part is of one sequence, and
    /// sees as many keys as its last token needs, in whole blocks.
    Sequences {
        /// Tokens of a sequence.
        each: usize,
        /// Keys of a block.
        block: usize,
    },
}

/// The mask of a node with this operand 3, if what a sequence's token sees can be read from it before
/// the graph is computed: an input of the graph, in F16.
pub fn readable_mask(node: Tensor<'_>) -> Option<Tensor<'_>> {
    node.src(3).filter(|mask| mask.op() == Op::NONE && mask.ty() == DataType(sys::GGML_TYPE_F16))
}

/// A tensor that is a part of another one.
struct TokenSlice {
    tensor: Box<sys::ggml_tensor>,
    whole: *mut sys::ggml_tensor,
    /// Offset in bytes of its first token.
    offset: usize,
}

/// A part of which only the keys that its sequence needs are used.
struct Cut {
    part: usize,
    /// The dimension of keys.
    dimension: usize,
    mask: *mut sys::ggml_tensor,
    /// The sequence and its last token of the part, which are the row of the mask.
    row: [usize; 2],
    block: usize,
}

/// Nodes of a graph, some of them divided.
pub struct Divided {
    /// The nodes in order of execution: the graph's own, and parts.
    nodes: Vec<*mut sys::ggml_tensor>,
    parts: Vec<TokenSlice>,
    cuts: Vec<Cut>,
    raw: Box<abi::Graph>,
}

impl Divided {
    /// Divides the nodes for which `how` returns a division: MUL_MAT by the columns of its input,
    /// FLASH_ATTN_EXT by queries or by sequences. `None` if there are none.
    ///
    /// # Panics
    /// If a division does not fit its node.
    pub fn of(graph: &Graph<'_>, how: impl Fn(Tensor<'_>) -> Option<Division>) -> Option<Self> {
        let mut parts = Parts::default();
        let mut nodes = Vec::with_capacity(graph.len());
        for i in 0..graph.len() {
            let node = graph.node(i);
            match how(node) {
                Some(division) => parts.divide(node, &division, &mut nodes),
                None => nodes.push(node.as_ptr()),
            }
        }
        let Parts { all: parts, cuts, .. } = parts;
        if parts.is_empty() {
            return None;
        }
        let mut raw = Box::new(graph.view(0, graph.len()));
        raw.n_nodes = c_int::try_from(nodes.len()).expect("few nodes");
        raw.nodes = nodes.as_mut_ptr();
        raw.uid = graph.uid().map_or(0, std::num::NonZeroU64::get);
        Some(Self { nodes, parts, cuts, raw })
    }

    /// Points the parts to where the whole tensors' bytes are now, and lets each see the keys of its
    /// sequence. Call before each computation, with the graph's inputs set.
    pub fn follow(&mut self) {
        for part in &mut self.parts {
            // SAFETY: the graph is the one that this was made of, and alive.
            part.tensor.data = unsafe { (*part.whole).data }.wrapping_byte_add(part.offset);
        }
        let mut last = None;
        for cut in &self.cuts {
            let seen = match last {
                Some((mask, row, seen)) if (mask, row) == (cut.mask, cut.row) => seen,
                // SAFETY: `readable_mask` made sure of what it is; alive as above, and in this
                // machine's memory, since ggml's CPU backend computes with it.
                _ => unsafe { keys_seen(cut.mask, cut.row) },
            };
            last = Some((cut.mask, cut.row, seen));
            let TokenSlice { tensor, whole, .. } = &mut self.parts[cut.part];
            // SAFETY: as above.
            let all = unsafe { (**whole).ne[cut.dimension] };
            let keys = seen.max(1).next_multiple_of(cut.block);
            tensor.ne[cut.dimension] = i64::try_from(keys).map_or(all, |keys| keys.min(all));
        }
    }

    /// The divided graph. The one that it was made of must be alive for as long as this is used.
    pub fn graph(&mut self) -> Graph<'_> {
        self.raw.nodes = self.nodes.as_mut_ptr();
        // SAFETY: the nodes are the graph's, which is alive, or parts, which live as long as `self`;
        // all other fields are those of the graph.
        unsafe { Graph::from_raw((&raw mut *self.raw).cast()) }
    }
}

/// Number of keys up to the last one that a token of a sequence sees.
///
/// # Safety
/// The mask is a live tensor in F16 with readable bytes, with the sequence in dimension 3 and the token in
/// dimension 1.
unsafe fn keys_seen(mask: *const sys::ggml_tensor, [sequence, token]: [usize; 2]) -> usize {
    /// Minus infinity in F16: the key is hidden.
    const HIDDEN: u16 = 0xfc00;
    // SAFETY: the caller's contract; rows are contiguous in ggml's masks.
    unsafe {
        let row = sequence * (*mask).nb[3] + token * (*mask).nb[1];
        let row = (*mask).data.cast::<u8>().add(row).cast::<u16>();
        let keys = (*mask).ne[0].unsigned_abs() as usize;
        (0..keys).rev().find(|&key| *row.add(key) != HIDDEN).map_or(0, |last| last + 1)
    }
}

/// A range of a dimension of a tensor.
type Within = (usize, Range<usize>);

/// The parts made so far.
#[derive(Default)]
struct Parts {
    all: Vec<TokenSlice>,
    cuts: Vec<Cut>,
    /// Parts of operands, which nodes share, by the whole tensor and the ranges of its dimensions: products
    /// with one input are divided in different ways if their weights' types differ.
    operands: HashMap<(usize, Vec<Within>), *mut sys::ggml_tensor>,
}

impl Parts {
    /// Appends the parts of a node to `nodes`.
    fn divide(&mut self, node: Tensor<'_>, division: &Division, nodes: &mut Vec<*mut sys::ggml_tensor>) {
        let mask = readable_mask(node);
        for tokens in &division.parts {
            let [result, operands @ ..] = ranges(node.op(), division.along, tokens.clone());
            let part = self.part(node, &result);
            for (operand, within) in operands.into_iter().enumerate() {
                let Some(whole) = node.src(operand).filter(|_| !within.is_empty()) else { continue };
                let key = (whole.as_ptr() as usize, within);
                let of_operand = match self.operands.get(&key) {
                    Some(&known) => known,
                    None => {
                        let made = self.part(whole, &key.1);
                        if let (Along::Sequences { each, block }, Some(mask)) = (division.along, mask) {
                            self.cut(operand, mask, [tokens.start / each, (tokens.end - 1) % each], block);
                        }
                        self.operands.insert(key, made);
                        made
                    }
                };
                // SAFETY: made above, and boxed.
                unsafe { (*part).src[operand] = of_operand };
            }
            nodes.push(part);
        }
    }

    /// Notes that the part made last, of this operand of an attention, has a dimension of keys.
    fn cut(&mut self, operand: usize, mask: Tensor<'_>, row: [usize; 2], block: usize) {
        let dimension = match operand {
            1 | 2 => 1,
            3 => 0,
            _ => return,
        };
        self.cuts.push(Cut { part: self.all.len() - 1, dimension, mask: mask.as_ptr(), row, block });
    }

    /// Makes the part of a tensor within ranges of its dimensions.
    fn part(&mut self, whole: Tensor<'_>, within: &[Within]) -> *mut sys::ggml_tensor {
        // SAFETY: the tensor is alive for the graph's call; a plain copy.
        let mut tensor = Box::new(unsafe { *whole.as_ptr() });
        let mut offset = 0;
        for (dimension, range) in within {
            assert!(whole.ne()[*dimension].unsigned_abs() as usize >= range.end, "a part of its tokens");
            offset += range.start * whole.nb()[*dimension];
            tensor.ne[*dimension] = i64::try_from(range.len()).expect("tokens of a batch");
        }
        // The memory that it is in, which tells whether something else writes there.
        tensor.view_src = whole.storage().as_ptr();
        tensor.view_offs = whole.view_offset() + offset;
        // A name belongs to one node of a graph.
        tensor.name = [0; 64];
        let ptr = &raw mut *tensor;
        self.all.push(TokenSlice { tensor, whole: whole.as_ptr(), offset });
        ptr
    }
}

/// Ranges of some tokens of a node: in its result, and in its first four operands; empty: everywhere.
///
/// # Panics
/// If such a node cannot be divided so.
fn ranges(op: Op, along: Along, tokens: Range<usize>) -> [Vec<Within>; 5] {
    let everywhere = Vec::new;
    match (op, along) {
        (Op::MUL_MAT, Along::Columns) => {
            [vec![(1, tokens.clone())], everywhere(), vec![(1, tokens)], everywhere(), everywhere()]
        }
        (Op::MUL_MAT, Along::Sequences { each, .. }) => {
            let sequence = tokens.start / each;
            let own = tokens.start - sequence * each..tokens.end - sequence * each;
            let columns = || vec![(3, sequence..sequence + 1), (1, own.clone())];
            [columns(), everywhere(), columns(), everywhere(), everywhere()]
        }
        (Op::FLASH_ATTN_EXT, Along::Columns) => {
            let queries = || vec![(1, tokens.clone())];
            [vec![(2, tokens.clone())], queries(), everywhere(), everywhere(), queries()]
        }
        (Op::FLASH_ATTN_EXT, Along::Sequences { each, .. }) => {
            let sequence = tokens.start / each;
            let of_sequence = || (3, sequence..sequence + 1);
            let own = tokens.start - sequence * each..tokens.end - sequence * each;
            let keys = || vec![of_sequence()];
            let queries = || vec![of_sequence(), (1, own.clone())];
            [vec![of_sequence(), (2, own.clone())], queries(), keys(), keys(), queries()]
        }
        (op, along) => panic!("{} cannot be divided along {along:?}", op.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{CpuBackend, RunStatus};
    use crate::testing::graph::TestGraph;

    /// A product of a 3x4 matrix with five columns, divided into parts of up to `each`.
    fn product(each: usize) -> (usize, Vec<f32>) {
        let mut test = TestGraph::new();
        let values = |n: usize, by: f32| (0..n).map(|i| i as f32 * by).collect::<Vec<f32>>();
        test.matrix("weights", 4, &values(12, 0.5));
        test.matrix("input", 4, &values(20, 0.25));
        test.mul_mat("product", "weights", "input");
        test.add("sum", "product", "product");
        let graph = test.graph();
        let is_product = |node: Tensor<'_>| node.op() == Op::MUL_MAT;
        let divided =
            Divided::of(&graph, |node| is_product(node).then_some(Division::by(5, each, Along::Columns)));
        let mut divided = divided.expect("a product");
        divided.follow();
        let divided = divided.graph();
        assert_eq!(CpuBackend::new(2).run(&divided, 0, divided.len()), RunStatus::Done);
        (divided.len(), test.values("sum"))
    }

    #[test]
    fn parts_compute_what_the_node_computes() {
        let expected: Vec<f32> = (0..15)
            .map(|at| {
                let (row, column) = (at % 3, at / 3);
                let term = |i: usize| (row * 4 + i) as f32 * 0.5 * ((column * 4 + i) as f32 * 0.25);
                2.0 * (0..4).map(term).sum::<f32>()
            })
            .collect();
        for (each, nodes) in [(1, 6), (2, 4), (5, 2), (7, 2)] {
            assert_eq!(product(each), (nodes, expected.clone()), "parts of {each}");
        }
    }

    #[test]
    fn products_that_share_an_input_are_divided_each_in_its_way() {
        let mut test = TestGraph::new();
        let values = |n: usize, by: f32| (0..n).map(|i| i as f32 * by).collect::<Vec<f32>>();
        test.matrix("weights", 4, &values(12, 0.5));
        test.matrix("input", 4, &values(20, 0.25));
        test.mul_mat("one by one", "weights", "input");
        test.mul_mat("by two", "weights", "input");
        test.add("sum", "one by one", "by two");
        let graph = test.graph();
        let first = test.tensor("one by one");
        let mut divided = Divided::of(&graph, |node| {
            let each = if node == first { 1 } else { 2 };
            (node.op() == Op::MUL_MAT).then_some(Division::by(5, each, Along::Columns))
        })
        .expect("two products");
        divided.follow();
        let divided = divided.graph();
        assert_eq!(divided.len(), 5 + 3 + 1);
        assert_eq!(CpuBackend::new(2).run(&divided, 0, divided.len()), RunStatus::Done);
        assert_eq!(test.values("sum"), product(5).1, "twice the product, as there");
    }

    #[test]
    fn a_graph_without_such_nodes_is_not_divided() {
        let mut test = TestGraph::new();
        test.leaf("a", &[1.0]);
        test.add("sum", "a", "a");
        assert!(Divided::of(&test.graph(), |_| None).is_none());
    }
}
