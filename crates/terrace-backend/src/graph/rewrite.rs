//! Rewrites nodes in place, so that the graph keeps its use counts and fusions.

use super::rows::{self, RowsNode};
use crate::moe::fused::{self, FusedNode};
use crate::moe::single::{self, ExpertNode, ExpertRun};
use terrace_ggml::{Graph, SavedOp};
use terrace_store::Store;

/// A rewritten node.
struct Rewrite {
    node: usize,
    saved: Option<SavedOp>,
    kind: Kind,
}

/// The way in which a node runs, with its index in the list of that kind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One product with chosen experts.
    Expert(usize),
    /// The last product of a block, in whose place the whole block runs.
    Fused(usize),
    /// Nothing, since a fused node computes it.
    Nothing,
    /// Rows of a table.
    Rows(usize),
}

/// The nodes of a graph that are rewritten while it runs.
#[derive(Default)]
pub struct Rewrites(Vec<Rewrite>);

/// The lists that rewritten nodes point into.
pub struct Lists<'a> {
    pub experts: &'a mut [ExpertNode],
    /// The state that [`Lists::experts`] share.
    pub run: *const ExpertRun,
    pub fused: &'a [FusedNode],
    pub rows: &'a mut [RowsNode],
}

impl Rewrites {
    /// Clears the list of the last graph.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds node `node` of the graph, to run as `kind`.
    pub fn push(&mut self, node: usize, kind: Kind) {
        self.0.push(Rewrite { node, saved: None, kind });
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rewritten nodes and their kinds.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Kind)> {
        self.0.iter().map(|rewrite| (rewrite.node, rewrite.kind))
    }

    /// Drops single products with chosen experts, which then run as part of fused nodes.
    pub fn drop_experts(&mut self) {
        self.0.retain(|rewrite| !matches!(rewrite.kind, Kind::Expert(_)));
    }

    /// Rewrites the nodes until [`Rewrites::restore`]; `lists` and the store must not move until
    /// then.
    pub fn apply(&mut self, graph: &Graph<'_>, lists: Lists<'_>, store: &mut Store) {
        for node in lists.rows.iter_mut() {
            node.store = store;
        }
        let count = lists.experts.len();
        let nodes = lists.experts.as_mut_ptr();
        for i in 0..count {
            // SAFETY: within the list, which does not grow until the next graph; written through
            // the pointer that the nodes keep.
            unsafe {
                (*nodes.add(i)).shared = lists.run;
                (*nodes.add(i)).nodes = nodes;
                if i > 0 {
                    (*nodes.add(i - 1)).next = nodes.add(i);
                }
            }
        }
        for rewrite in &mut self.0 {
            let node = graph.node(rewrite.node);
            rewrite.saved = Some(match rewrite.kind {
                // SAFETY: within the list.
                Kind::Expert(i) => node.make_custom(single::run, unsafe { nodes.add(i) }.cast()),
                Kind::Fused(i) => node.make_custom(fused::run, (&raw const lists.fused[i]).cast_mut().cast()),
                Kind::Nothing => node.make_none(),
                Kind::Rows(i) => node.make_custom(rows::run, (&raw const lists.rows[i]).cast_mut().cast()),
            });
        }
    }

    /// Restores the nodes.
    pub fn restore(&mut self, graph: &Graph<'_>) {
        for rewrite in &mut self.0 {
            if let Some(saved) = rewrite.saved.take() {
                graph.node(rewrite.node).restore(saved);
            }
        }
    }
}
