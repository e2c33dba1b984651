//! Ways to compute a pass, by whose bits its tokens get: all that the executor does differently for
//! [`Passes`] is decided here.

use super::alone::{self, LoneGraphs};
use super::bits::BY_DOT_PRODUCTS;
use super::prompts;
use crate::passes::Passes;
use terrace_ggml::{Divided, Graph, Tensor};

impl Passes {
    /// Notes a new graph of such a pass, or checks that it can give what the pass promises. `own`: attention whose
    /// tokens have the bits that they have alone.
    pub(super) fn examine(&self, graph: &Graph<'_>, seen: &mut LoneGraphs, own: impl Fn(Tensor<'_>) -> bool) {
        match self {
            Self::One => seen.learn_prompt(graph),
            Self::Tokens(0 | 1) => seen.learn(graph),
            Self::Tokens(tokens) => seen.check(graph, *tokens, own),
            Self::Prompts(prompts) => seen.check_prompts(graph, prompts, own),
        }
    }

    /// The graph with its nodes divided so that each part is computed as in a pass of its own; `None` if no
    /// node is. `own`: as above.
    pub(super) fn divide(&self, graph: &Graph<'_>, own: impl Fn(Tensor<'_>) -> bool) -> Option<Divided> {
        match self {
            Self::One | Self::Tokens(0 | 1) => None,
            Self::Tokens(tokens) => {
                Divided::of(graph, |node| alone::division_of(node, *tokens).filter(|_| !own(node)))
            }
            Self::Prompts(prompts) => Divided::of(graph, |node| {
                prompts::division_of(node, prompts).ok().flatten().filter(|_| !own(node))
            }),
        }
    }

    /// Returns true if products with experts that are left to ggml round otherwise than the pass promises.
    pub(super) fn minds_ggml_experts(&self) -> bool {
        match self {
            Self::One => false,
            Self::Tokens(tokens) => *tokens > BY_DOT_PRODUCTS,
            Self::Prompts(_) => true,
        }
    }

    /// Returns true if a graph is not computed because what the pass promises is unclear. Tokens are computed all the
    /// same; a prompt takes too long to be computed in vain.
    pub(super) fn gives_up(&self, seen: &LoneGraphs) -> bool {
        match self {
            Self::One | Self::Tokens(_) => false,
            Self::Prompts(_) => seen.is_unclear(),
        }
    }
}
