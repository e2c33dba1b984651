//! Nodes that are custom ones for the duration of a run.

use terrace_ggml::{CustomFn, Graph, SavedOp};

/// Inputs of such a node; its function gets a pointer to this.
pub trait CustomNode {
    /// Its index in the graph.
    fn index(&self) -> usize;

    /// The operation in whose place it is computed.
    fn saved(&mut self) -> &mut Option<SavedOp>;
}

/// Turns the nodes into custom nodes until [`restore`]. They stay where they are until then.
pub fn rewrite<N: CustomNode>(nodes: &mut [N], graph: &Graph<'_>, run: CustomFn) {
    for node in nodes {
        let this = (&raw const *node).cast_mut().cast();
        let saved = graph.node(node.index()).make_custom(run, this);
        *node.saved() = Some(saved);
    }
}

/// Puts the nodes back.
pub fn restore<N: CustomNode>(nodes: &mut [N], graph: &Graph<'_>) {
    for node in nodes {
        if let Some(saved) = node.saved().take() {
            graph.node(node.index()).restore(saved);
        }
    }
}
