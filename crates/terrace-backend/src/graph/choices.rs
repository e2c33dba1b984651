//! Reads what routers choose among experts that ggml computes, to count it.
//!
//! Experts in memory need no node of Terrace's: ggml multiplies by them. Their ids are valid from
//! the router to the last product that uses them, and later operations may use the same memory. So
//! a node in between that computes nothing - llama.cpp's ids are themselves a view of sorted
//! numbers - becomes a custom node for the duration of a run, which costs one barrier per layer.

use crate::observe::usage::ExpertUsage;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use terrace_ggml::cpu::{RawTensor, custom_node};
use terrace_ggml::{Graph, Op, SavedOp, Tensor};
use terrace_model::{LayerId, split_layer};

/// The choices of a graph that no node of Terrace's sees. Reused from graph to graph.
#[derive(Default)]
pub struct Choices {
    nodes: Vec<Choice>,
}

struct Choice {
    /// Index in the graph of the node that computes nothing.
    node: usize,
    /// The ids: I32, `[top_k, tokens]`.
    ids: *mut RawTensor,
    layer: LayerId,
    experts: u32,
    /// Where to count, for the duration of a run, and the layer's index there.
    counted: Option<(Arc<ExpertUsage>, usize)>,
    saved: Option<SavedOp>,
}

// SAFETY: the pointers are into the graph's memory, and used within one `compute` call.
unsafe impl Send for Choices {}

impl Choices {
    /// Finds the graph's products with experts that do not run as nodes of Terrace's.
    pub fn find(&mut self, graph: &Graph<'_>, is_rewritten: impl Fn(usize) -> bool) {
        self.nodes.clear();
        for i in 0..graph.len() {
            let node = graph.node(i);
            if node.op() != Op::MUL_MAT_ID || is_rewritten(i) {
                continue;
            }
            let (Some(experts), Some(ids)) = (node.src(0), node.src(2)) else { continue };
            if self.nodes.iter().any(|known| std::ptr::eq(known.ids, ids.as_ptr())) {
                continue;
            }
            let name = experts.name();
            let Some(layer) = split_layer(&name).and_then(|(layer, _)| layer.parse().ok()) else { continue };
            let Some(node) = idle_between(graph, ids, i, &is_rewritten) else {
                tracing::debug!(layer, "the experts of this layer are not counted: no node is idle");
                continue;
            };
            let experts = u32::try_from(experts.ne()[2]).unwrap_or(0);
            let (layer, ids) = (LayerId(layer), ids.as_ptr());
            self.nodes.push(Choice { node, ids, layer, experts, counted: None, saved: None });
        }
    }

    /// Turns the idle nodes into ones that count, until [`Choices::restore`].
    pub fn rewrite(&mut self, graph: &Graph<'_>, usage: &Arc<ExpertUsage>) {
        for choice in &mut self.nodes {
            let Some(index) = usage.index_of(choice.layer, choice.experts) else { continue };
            choice.counted = Some((Arc::clone(usage), index));
            let this = (&raw const *choice).cast_mut().cast();
            choice.saved = Some(graph.node(choice.node).make_custom(run, this));
        }
    }

    /// Puts the nodes back.
    pub fn restore(&mut self, graph: &Graph<'_>) {
        for choice in &mut self.nodes {
            choice.counted = None;
            if let Some(saved) = choice.saved.take() {
                graph.node(choice.node).restore(saved);
            }
        }
    }
}

/// A node that computes nothing, from `ids` (included) to node `end`, at which they are used.
fn idle_between(
    graph: &Graph<'_>,
    ids: Tensor<'_>,
    end: usize,
    is_rewritten: &impl Fn(usize) -> bool,
) -> Option<usize> {
    // If another backend computes the ids, they are there from the start.
    let start = (0..end).rev().find(|&i| graph.node(i) == ids).unwrap_or(0);
    (start..end).find(|&i| graph.node(i).op().is_view() && graph.node(i).op() != Op::NONE && !is_rewritten(i))
}

/// Counts the choice.
unsafe extern "C" fn run(_: *mut RawTensor, ith: c_int, _: c_int, choice: *mut c_void) {
    if ith != 0 {
        return;
    }
    // SAFETY: a choice of the list, which does not change while the graph runs.
    let choice = unsafe { &*choice.cast::<Choice>() };
    let Some((usage, index)) = &choice.counted else { return };
    // SAFETY: the graph's tensor, which lives while the graph runs.
    let ids = unsafe { custom_node(choice.ids) };
    let [top_k, tokens, ..] = ids.ne().map(|n| n.unsigned_abs() as usize);
    let [stride_k, stride_token, ..] = ids.nb();
    let base = ids.data().cast::<u8>();
    let at = |token: usize, slot: usize| -> i32 {
        // SAFETY: ids is an allocated I32 tensor that was computed before this node, and no node
        // before its last use, which follows, writes to its memory; token and slot are within it.
        unsafe { base.add(token * stride_token + slot * stride_k).cast::<i32>().read_unaligned() }
    };
    usage.count_ids(
        *index,
        (0..tokens)
            .flat_map(|token| (0..top_k).map(move |slot| (token, slot)))
            .map(|(token, slot)| at(token, slot)),
    );
}
