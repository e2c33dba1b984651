//! Weights that a graph reads as rows are in rows.

use crate::memory::places::Places;
use terrace_ggml::{Graph, Op, Tensor};

/// Puts interleaved weights back into rows that a node of the graph reads as rows: all uses but those as the weights of
/// products for which `multiplies`, given a node and its weights, is true. Returns true if there were such.
pub fn put_back<'g>(
    graph: &Graph<'g>,
    places: Places,
    multiplies: impl Fn(usize, Tensor<'g>) -> bool,
) -> bool {
    let mut any = false;
    for i in 0..graph.len() {
        let node = graph.node(i);
        if node.op() == Op::NONE {
            continue;
        }
        for (position, operand) in node.sources().enumerate() {
            let weights = operand.storage();
            let product = position == 0 && operand == weights && multiplies(i, weights);
            if !product && places.put_back(weights) {
                tracing::debug!(weight = weights.name(), node = node.name(), "put back into rows");
                any = true;
            }
        }
    }
    any
}
