//! Passes whose tokens have the bits of passes of their own.
//!
//! Drafts are checked in one pass of several tokens, and have to give what plain decoding gives; the
//! next tokens of several slots are computed in one pass, and must not depend on each other. On
//! the CPU, results depend on a pass's number of tokens in two operations only: products for which
//! ggml has kernels of several columns, and attention, which is divided over threads for a single
//! query. Both are computed token by token; weights are read from disk once all the same.
//!
//! Slots have a cache each, and attention of several slots shows all of them as many keys as the
//! longest has. How keys are dealt to threads depends on that, so each slot's part is shown its own.
//!
//! Whether that suffices is checked for each graph: it must compute the same operations as one of a
//! single token, and no product's tokens may be confused with its heads.

use super::bits::{BY_DOT_PRODUCTS, KEYS, Unclear};
use super::prompts;
use crate::passes::Prompts;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use terrace_ggml::{Along, Division, Graph, Op, Tensor, readable_mask};

/// From this many keys on, attention of one query is divided over the threads.
const DEALT_KEYS: i64 = 512;

/// The graphs of single tokens and of single prompts, by what they compute, and what is unclear about a
/// pass.
#[derive(Debug, Default)]
pub struct LoneGraphs {
    known: HashSet<u64>,
    prompts: HashSet<u64>,
    unclear: Option<Unclear>,
}

impl LoneGraphs {
    /// Notes a graph of one token.
    pub fn learn(&mut self, graph: &Graph<'_>) {
        self.known.insert(computed_by(graph));
    }

    /// Notes a graph that is computed as ggml does.
    pub fn learn_prompt(&mut self, graph: &Graph<'_>) {
        self.prompts.insert(computed_by(graph));
    }

    /// Checks whether a graph of several prompts can be divided such that each has the bits of a pass of
    /// its own. The first graph of prompts may come before one of a single prompt, and is trusted if all
    /// of it can be divided. `own`: nodes that need no division.
    pub fn check_prompts(&mut self, graph: &Graph<'_>, prompts: &Prompts, own: impl Fn(Tensor<'_>) -> bool) {
        let nodes = || (0..graph.len()).map(|i| graph.node(i));
        let divided =
            nodes().find_map(|node| prompts::division_of(node, prompts).err().filter(|_| !own(node)));
        let seen = self.prompts.is_empty() || self.prompts.contains(&computed_by(graph));
        // One model's graphs have logits of all tokens, of which llama.cpp takes the first ones.
        let ends = !graph.is_empty() && !has_tokens_in_columns(graph.node(graph.len() - 1), prompts.tokens());
        self.unclear = divided.or((!seen || !ends).then_some(Unclear::Graph)).or(self.unclear);
    }

    /// Returns true if something is unclear about the graphs that were checked.
    pub const fn is_unclear(&self) -> bool {
        self.unclear.is_some()
    }

    /// Checks whether a graph of `tokens` tokens can be divided such that each has the bits that it has
    /// alone. `own`: attention that needs no division.
    pub fn check(&mut self, graph: &Graph<'_>, tokens: usize, own: impl Fn(Tensor<'_>) -> bool) {
        let hides = |node: Tensor<'_>| hides_keys(node, tokens) && !own(node);
        if self.known.is_empty() {
            self.unclear = Some(Unclear::Unseen);
        } else if !self.known.contains(&computed_by(graph)) {
            self.unclear = Some(Unclear::Graph);
        } else if (0..graph.len()).any(|i| hides(graph.node(i))) {
            self.unclear = Some(Unclear::Keys);
        } else if (0..graph.len()).any(|i| confuses(graph.node(i), tokens)) {
            self.unclear = Some(Unclear::Tokens);
        }
    }

    /// Notes that ggml computes products with experts in a pass of more tokens than it multiplies by dot
    /// products, or of prompts.
    pub const fn experts_are_left(&mut self) {
        if self.unclear.is_none() {
            self.unclear = Some(Unclear::Experts);
        }
    }

    /// Unclear properties of the graphs that were checked since this was last called.
    pub fn take_unclear(&mut self) -> Option<Unclear> {
        self.unclear.take()
    }
}

/// A number for the sequence of operations that compute something, copies aside.
fn computed_by(graph: &Graph<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for i in 0..graph.len() {
        let op = graph.node(i).op();
        if !op.is_view() && !op.is_copy() {
            op.name().hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Returns true if the dimension of a product's tokens cannot be told from the next one.
fn confuses(node: Tensor<'_>, tokens: usize) -> bool {
    let plain = node.op() == Op::MUL_MAT && node.int_param(1) == 0;
    let Some(input) = node.src(1).filter(|_| plain) else { return false };
    let [_, columns, next, _] = input.ne().map(|n| n.unsigned_abs() as usize);
    columns == tokens && next == tokens
}

/// Returns true if this is attention of several sequences, over so many keys that their number matters, with a
/// mask that does not tell how many each sequence needs.
fn hides_keys(node: Tensor<'_>, tokens: usize) -> bool {
    let many = |keys: Tensor<'_>| keys.ne()[1] >= DEALT_KEYS;
    let of_sequences = |how: Division| matches!(how.along, Along::Sequences { .. });
    division_of(node, tokens).is_some_and(of_sequences)
        && node.src(1).is_some_and(many)
        && readable_mask(node).is_none()
}

/// Division of a node in a pass of `tokens` tokens that are computed as if alone; `None`: undivided.
pub fn division_of(node: Tensor<'_>, tokens: usize) -> Option<Division> {
    match node.op() {
        // Parameter 1 marks a Hadamard matrix, which ggml applies row by row.
        Op::MUL_MAT if node.int_param(1) == 0 => {
            let (weights, input) = (node.src(0)?, node.src(1)?);
            let each = if weights.ty().has_one_product() { BY_DOT_PRODUCTS } else { 1 };
            let along = Along::Columns;
            (has_tokens_in_columns(input, tokens) && tokens > each).then(|| Division::by(tokens, each, along))
        }
        Op::FLASH_ATTN_EXT => {
            let [_, queries, _, sequences] = node.src(0)?.ne().map(|n| n.unsigned_abs() as usize);
            let along = match (queries, sequences) {
                (queries, _) if queries == tokens => Along::Columns,
                (1, sequences) if sequences == tokens => Along::Sequences { each: 1, block: KEYS },
                _ => return None,
            };
            Some(Division::by(tokens, 1, along))
        }
        _ => None,
    }
}

/// Returns true if dimension 1 of a tensor is that of the pass's tokens.
fn has_tokens_in_columns(tensor: Tensor<'_>, tokens: usize) -> bool {
    tensor.ne()[1].unsigned_abs() as usize == tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_ggml::testing::graph::TestGraph;

    #[test]
    fn products_are_divided_where_their_columns_are_tokens() {
        let mut test = TestGraph::new();
        test.leaf_of("weights", &[4, 3]);
        test.leaf_of("three", &[4, 3]);
        test.leaf_of("heads of three", &[4, 3, 3]);
        test.mul_mat("product", "weights", "three");
        test.mul_mat("of heads", "weights", "heads of three");
        test.add("sum", "product", "product");
        let of = |name: &str, tokens| division_of(test.tensor(name), tokens);
        let one = Division::by(3, 1, Along::Columns);
        assert_eq!(of("product", 3), Some(one), "F32 has kernels of columns");
        assert_eq!(of("product", 4), None, "no dimension has four tokens");
        assert_eq!(of("sum", 3), None);
        let unclear = |tokens| {
            let mut graphs = LoneGraphs::default();
            graphs.learn(&test.graph());
            graphs.check(&test.graph(), tokens, |_| false);
            (graphs.take_unclear(), graphs.take_unclear())
        };
        assert_eq!(unclear(3), (Some(Unclear::Tokens), None), "three tokens or three heads");
        assert_eq!(unclear(2), (None, None));
    }

    #[test]
    fn graphs_have_to_be_made_like_those_of_one_token() {
        let (mut one, mut several) = (TestGraph::new(), TestGraph::new());
        for test in [&mut one, &mut several] {
            test.leaf("a", &[1.0]);
            test.add("sum", "a", "a");
        }
        let mut graphs = LoneGraphs::default();
        graphs.check(&several.graph(), 2, |_| false);
        assert_eq!(graphs.take_unclear(), Some(Unclear::Unseen));
        graphs.learn(&one.graph());
        graphs.check(&several.graph(), 2, |_| false);
        assert_eq!(graphs.take_unclear(), None);
        several.mul("more", "sum", "a");
        graphs.check(&several.graph(), 2, |_| false);
        assert_eq!(graphs.take_unclear(), Some(Unclear::Graph));
    }
}
