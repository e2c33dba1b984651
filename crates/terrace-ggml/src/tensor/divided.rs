//! A graph in which some nodes are replaced by several that compute a part of its tokens each.
//!
//! ggml computes a product with one column by dot products, one with several by other kernels that
//! round otherwise. A node that is divided gives the bits of as many nodes of one token.

use super::graph::Graph;
use super::node::Tensor;
use super::op::Op;
use crate::raw::abi;
use llama_cpp_sys_2 as sys;
use std::collections::HashMap;
use std::ffi::c_int;

/// How a node is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// The tokens of the node.
    pub tokens: usize,
    /// Maximum number of tokens of a part; at least 1.
    pub each: usize,
}

/// A tensor that is a part of another one.
struct Part {
    tensor: Box<sys::ggml_tensor>,
    whole: *mut sys::ggml_tensor,
    /// Offset in bytes of its first token.
    offset: usize,
}

/// Nodes of a graph, some of them divided.
pub struct Divided {
    /// The nodes in order of execution: the graph's own, and parts.
    nodes: Vec<*mut sys::ggml_tensor>,
    parts: Vec<Part>,
    raw: Box<abi::Graph>,
}

impl Divided {
    /// Divides the nodes for which `how` returns a division: MUL_MAT by the columns of its input, and
    /// FLASH_ATTN_EXT by queries. `None` if there are none.
    ///
    /// # Panics
    /// If a division does not fit its node.
    pub fn of(graph: &Graph<'_>, how: impl Fn(Tensor<'_>) -> Option<Division>) -> Option<Self> {
        let mut parts = Parts::default();
        let mut nodes = Vec::with_capacity(graph.len());
        for i in 0..graph.len() {
            let node = graph.node(i);
            match how(node) {
                Some(division) => parts.divide(node, division, &mut nodes),
                None => nodes.push(node.as_ptr()),
            }
        }
        let parts = parts.all;
        if parts.is_empty() {
            return None;
        }
        let mut raw = Box::new(graph.view(0, graph.len()));
        raw.n_nodes = c_int::try_from(nodes.len()).expect("few nodes");
        raw.nodes = nodes.as_mut_ptr();
        raw.uid = graph.uid().map_or(0, std::num::NonZeroU64::get);
        Some(Self { nodes, parts, raw })
    }

    /// Points the parts to where the whole tensors' bytes are now. Call before each computation.
    pub fn follow(&mut self) {
        for part in &mut self.parts {
            // SAFETY: the graph is the one that this was made of, and alive.
            part.tensor.data = unsafe { (*part.whole).data }.wrapping_byte_add(part.offset);
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

/// The parts made so far.
#[derive(Default)]
struct Parts {
    all: Vec<Part>,
    /// Parts of operands, which nodes share, by the whole tensor, dimension and first token.
    operands: HashMap<(usize, usize, usize), *mut sys::ggml_tensor>,
}

impl Parts {
    /// Appends the parts of a node to `nodes`.
    fn divide(&mut self, node: Tensor<'_>, division: Division, nodes: &mut Vec<*mut sys::ggml_tensor>) {
        // Operands that have tokens, with the dimension; and the dimension of the result.
        let (operands, result): (&[(usize, usize)], usize) = match node.op() {
            Op::MUL_MAT => (&[(1, 1)], 1),
            Op::FLASH_ATTN_EXT => (&[(0, 1), (3, 1)], 2),
            op => panic!("{} cannot be divided", op.name()),
        };
        for first in (0..division.tokens).step_by(division.each) {
            let count = division.each.min(division.tokens - first);
            let part = self.part(node, result, first, count);
            for &(operand, dimension) in operands {
                let Some(whole) = node.src(operand) else { continue };
                let key = (whole.as_ptr() as usize, first, count);
                let of_operand = match self.operands.get(&key) {
                    Some(&known) => known,
                    None => self.part(whole, dimension, first, count),
                };
                self.operands.insert(key, of_operand);
                // SAFETY: made above, and boxed.
                unsafe { (*part).src[operand] = of_operand };
            }
            nodes.push(part);
        }
    }

    /// Makes the part of a tensor that has `count` tokens from `first` on in a dimension.
    fn part(
        &mut self,
        whole: Tensor<'_>,
        dimension: usize,
        first: usize,
        count: usize,
    ) -> *mut sys::ggml_tensor {
        assert!(whole.ne()[dimension].unsigned_abs() as usize >= first + count, "a part of its tokens");
        let offset = first * whole.nb()[dimension];
        // SAFETY: the tensor is alive for the graph's call; a plain copy.
        let mut tensor = Box::new(unsafe { *whole.as_ptr() });
        tensor.ne[dimension] = i64::try_from(count).expect("tokens of a batch");
        // The memory that it is in, which tells whether something else writes there.
        tensor.view_src = whole.storage().as_ptr();
        tensor.view_offs = whole.view_offset() + offset;
        // A name belongs to one node of a graph.
        tensor.name = [0; 64];
        let ptr = &raw mut *tensor;
        self.all.push(Part { tensor, whole: whole.as_ptr(), offset });
        ptr
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
        let divided = Divided::of(&graph, |node| is_product(node).then_some(Division { tokens: 5, each }));
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
    fn a_graph_without_such_nodes_is_not_divided() {
        let mut test = TestGraph::new();
        test.leaf("a", &[1.0]);
        test.add("sum", "a", "a");
        assert!(Divided::of(&test.graph(), |_| None).is_none());
    }
}
