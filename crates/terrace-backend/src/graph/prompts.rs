//! Passes of prompts of several sequences, each with the bits of a pass of its own.
//!
//! With streamed weights, a short prompt takes as long as reading them does, so prompts that wait
//! together share that. The same operations as for lone tokens depend on a pass's number of tokens
//! ([`super::alone`]); here they are divided by sequence, such that each part has the tokens that a pass
//! of that sequence has.

use super::bits::{BY_DOT_PRODUCTS, KEYS, Unclear};
use crate::passes::Prompts;
use terrace_ggml::{Along, Division, Op, Tensor, readable_mask};

/// Division of a node in a pass of these prompts; `None`: undivided.
///
/// # Errors
/// What is unclear about the node.
pub fn division_of(node: Tensor<'_>, prompts: &Prompts) -> Result<Option<Division>, Unclear> {
    match node.op() {
        // Parameter 1 marks a Hadamard matrix, which ggml applies row by row.
        Op::MUL_MAT if node.int_param(1) == 0 => of_product(node, prompts),
        Op::FLASH_ATTN_EXT => {
            let queries =
                node.src(0).map_or([0; 4], |queries| queries.ne().map(|n| n.unsigned_abs() as usize));
            let fits = queries[1] == prompts.each() && queries[3] == prompts.sequences();
            if !fits || readable_mask(node).is_none() {
                return Err(Unclear::Keys);
            }
            let along = Along::Sequences { each: prompts.each(), block: KEYS };
            Ok(Some(Division { parts: prompts.parts(), along }))
        }
        _ => Ok(None),
    }
}

fn of_product(node: Tensor<'_>, prompts: &Prompts) -> Result<Option<Division>, Unclear> {
    let (Some(weights), Some(input)) = (node.src(0), node.src(1)) else { return Ok(None) };
    let [_, columns, next, last] = input.ne().map(|n| n.unsigned_abs() as usize);
    let along = Along::Columns;
    if columns == prompts.tokens() {
        // ggml has other kernels for inputs with gaps, which parts of several matrices have.
        let gaps = next * last > 1 && input.is_contiguous();
        let confused = next == prompts.tokens() || last > 1;
        return if gaps || confused {
            Err(Unclear::Tokens)
        } else {
            Ok(Some(Division { parts: prompts.parts(), along }))
        };
    }
    if last == prompts.sequences() {
        // Weights of each head, after attention. Else attention as products: how many keys a sequence has
        // decides about its sums.
        let of_heads = columns == prompts.each() && weights.ne()[3] == 1;
        let along = Along::Sequences { each: prompts.each(), block: KEYS };
        return if of_heads && !(next > 1 && input.is_contiguous()) {
            Ok(Some(Division { parts: prompts.parts(), along }))
        } else {
            Err(Unclear::Keys)
        };
    }
    // The last tokens, which are chosen from: each is alone in its pass.
    let each = if weights.ty().has_one_product() { BY_DOT_PRODUCTS } else { 1 };
    let chosen = columns == prompts.sequences() && next * last == 1;
    Ok((chosen && columns > each).then(|| Division::by(columns, each, along)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_ggml::testing::graph::TestGraph;

    #[test]
    fn products_are_divided_by_sequence_and_those_of_last_tokens_one_by_one() {
        let prompts = Prompts::new(vec![3, 5]);
        let mut test = TestGraph::new();
        test.leaf_of("weights", &[4, 3]);
        test.leaf_of("tokens", &[4, 10]);
        test.leaf_of("last tokens", &[4, 2]);
        test.leaf_of("of heads", &[4, 10, 2]);
        test.leaf_of("keys", &[4, 7, 1, 2]);
        test.leaf_of("one head's", &[4, 7]);
        test.leaf_of("queries", &[4, 5, 1, 2]);
        test.leaf_of("others", &[4, 6]);
        test.mul_mat("of tokens", "weights", "tokens");
        test.mul_mat("of last tokens", "weights", "last tokens");
        test.mul_mat("of each head", "weights", "of heads");
        test.mul_mat("attention", "keys", "queries");
        test.mul_mat("after attention", "one head's", "queries");
        test.mul_mat("of others", "weights", "others");
        test.add("sum", "of tokens", "of tokens");
        let of = |name: &str| division_of(test.tensor(name), &prompts);
        let along = Along::Columns;
        assert_eq!(of("of tokens"), Ok(Some(Division { parts: vec![0..3, 3..5, 5..10], along })));
        assert_eq!(of("of last tokens"), Ok(Some(Division { parts: vec![0..1, 1..2], along })));
        assert_eq!(of("of each head"), Err(Unclear::Tokens), "its parts would have gaps");
        assert_eq!(of("attention"), Err(Unclear::Keys));
        let parts = vec![0..3, 3..5, 5..10];
        let along = Along::Sequences { each: 5, block: KEYS };
        assert_eq!(of("after attention"), Ok(Some(Division { parts, along })));
        assert_eq!([of("of others"), of("sum")], [Ok(None), Ok(None)]);
    }
}
