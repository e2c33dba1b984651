//! Reads what routers choose among experts that ggml computes, to count it.
//!
//! Experts in memory need no node of Terrace's: ggml multiplies by them. Their ids are valid from
//! the router to the last product that uses them, and later operations may use the same memory. So
//! a node in between that computes nothing - llama.cpp's ids are themselves a view of sorted
//! numbers - becomes a custom node for the duration of a run, which costs one barrier per layer. Ids
//! that another backend has computed are there before the run.

use crate::observe::usage::ExpertUsage;
use crate::passes::Passes;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use terrace_ggml::cpu::{RawTensor, custom_node};
use terrace_ggml::{Graph, Op, SavedOp};
use terrace_model::{LayerId, Name};

/// Nodes after the last product in which a layer's end is looked for: they are a bias, a scale and the
/// router's weights.
const TO_THE_END: usize = 6;

/// The choices of a graph that no node of Terrace's sees. Reused from graph to graph.
#[derive(Default)]
pub struct Choices {
    nodes: Vec<Choice>,
}

struct Choice {
    /// Index in the graph of the node that computes nothing; `None` if the ids are there before the
    /// run.
    node: Option<usize>,
    /// Index of one behind the last product.
    end: Option<usize>,
    /// The ids: I32, `[top_k, tokens]`.
    ids: *mut RawTensor,
    layer: LayerId,
    experts: u32,
    /// Counters for the duration of a run, the layer's index there, and whose tokens count.
    counted: Option<(Arc<ExpertUsage>, usize, Passes)>,
    saved: Option<SavedOp>,
    saved_end: Option<SavedOp>,
    /// When the ids were read, in nanoseconds after `origin`.
    chosen: AtomicU64,
    origin: Instant,
}

// SAFETY: the pointers are into the graph's memory, and used within one `compute` call.
unsafe impl Send for Choices {}

impl Choices {
    /// Forgets the last graph.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }

    /// Finds the graph's products with experts that are not `counted` where they are computed.
    pub fn find(
        &mut self,
        graph: &Graph<'_>,
        is_rewritten: impl Fn(usize) -> bool,
        is_counted: impl Fn(usize) -> bool,
    ) {
        self.nodes.clear();
        for i in 0..graph.len() {
            let node = graph.node(i);
            if node.op() != Op::MUL_MAT_ID || is_counted(i) {
                continue;
            }
            let (Some(experts), Some(ids)) = (node.src(0), node.src(2)) else { continue };
            if self.nodes.iter().any(|known| std::ptr::eq(known.ids, ids.as_ptr())) {
                continue;
            }
            let name = experts.name();
            let name = Name::of(&name);
            // A layer's products may be in several graphs, if a device has some of its matrices: one
            // of them counts.
            let Some(layer) = name.layer.filter(|_| name.role.contains("down")) else { continue };
            let Ok(layer) = layer.parse() else { continue };
            let computed = (0..i).find(|&node| graph.node(node).storage() == ids.storage());
            let idle = computed.and_then(|from| idle_between(graph, from, i, &is_rewritten));
            if computed.is_some() && idle.is_none() {
                tracing::debug!(layer, "the experts of this layer are not counted: no node is idle");
                continue;
            }
            let experts = u32::try_from(experts.ne()[2]).unwrap_or(0);
            let last = graph.len().min(i + 1 + TO_THE_END);
            self.nodes.push(Choice {
                node: idle,
                end: idle.and_then(|_| (i + 1..last).find(|&i| is_idle(graph, i, &is_rewritten))),
                ids: ids.as_ptr(),
                layer: LayerId(layer),
                experts,
                counted: None,
                saved: None,
                saved_end: None,
                chosen: AtomicU64::new(0),
                origin: Instant::now(),
            });
        }
    }

    /// Counts what has been chosen already, and turns the idle nodes into ones that count the rest,
    /// until [`Choices::restore`]. Called when the graph is about to run.
    pub fn rewrite(&mut self, graph: &Graph<'_>, usage: &Arc<ExpertUsage>, passes: &Passes) {
        for choice in &mut self.nodes {
            let Some(index) = usage.index_of(choice.layer, choice.experts) else { continue };
            let Some(node) = choice.node else {
                // SAFETY: the ids are an input of the graph, which was computed before it.
                unsafe { count(usage, index, choice.ids, passes) };
                continue;
            };
            choice.counted = Some((Arc::clone(usage), index, passes.clone()));
            let this = (&raw const *choice).cast_mut().cast();
            choice.saved = Some(graph.node(node).make_custom(run, this));
            if let Some(end) = choice.end.filter(|_| usage.times_layers()) {
                choice.saved_end = Some(graph.node(end).make_custom(end_of_layer, this));
            }
        }
    }

    /// Puts the nodes back.
    pub fn restore(&mut self, graph: &Graph<'_>) {
        for choice in &mut self.nodes {
            choice.counted = None;
            if let Some((saved, node)) = choice.saved.take().zip(choice.node) {
                graph.node(node).restore(saved);
            }
            if let Some((saved, end)) = choice.saved_end.take().zip(choice.end) {
                graph.node(end).restore(saved);
            }
        }
    }
}

/// A node that computes nothing, from the one that computes the ids (included) to the one that uses
/// them.
fn idle_between(
    graph: &Graph<'_>,
    from: usize,
    to: usize,
    is_rewritten: &impl Fn(usize) -> bool,
) -> Option<usize> {
    // The last one that writes to the ids' memory, or refers to it: they are complete.
    let ids = graph.node(from).storage();
    let complete = (from..to).rev().find(|&i| graph.node(i).storage() == ids).unwrap_or(from);
    (complete..to).find(|&i| is_idle(graph, i, is_rewritten))
}

/// Returns true for nodes that compute nothing.
fn is_idle(graph: &Graph<'_>, node: usize, is_rewritten: &impl Fn(usize) -> bool) -> bool {
    let op = graph.node(node).op();
    op.is_view() && op != Op::NONE && !is_rewritten(node)
}

/// Counts the choice.
unsafe extern "C" fn run(_: *mut RawTensor, ith: c_int, _: c_int, choice: *mut c_void) {
    if ith != 0 {
        return;
    }
    // SAFETY: a choice of the list, which does not change while the graph runs.
    let choice = unsafe { &*choice.cast::<Choice>() };
    let Some((usage, index, passes)) = &choice.counted else { return };
    // SAFETY: the ids were computed before this node, and no node before their last use, which
    // follows, writes to their memory.
    unsafe { count(usage, *index, choice.ids, passes) };
    choice.chosen.store(nanos_since(choice.origin), Ordering::Relaxed);
}

/// Notes how long the experts of the choice took. All threads have computed what is before this node.
unsafe extern "C" fn end_of_layer(_: *mut RawTensor, ith: c_int, _: c_int, choice: *mut c_void) {
    if ith != 0 {
        return;
    }
    // SAFETY: as in `run`.
    let choice = unsafe { &*choice.cast::<Choice>() };
    let Some((usage, index, _)) = &choice.counted else { return };
    let chosen = choice.chosen.load(Ordering::Relaxed);
    usage.add_time(*index, nanos_since(choice.origin).saturating_sub(chosen));
}

fn nanos_since(origin: Instant) -> u64 {
    u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Counts the ids for the layer of this index, but not of tokens that nobody needs.
///
/// # Safety
/// `ids` is a live I32 tensor of two dimensions whose values are in memory.
unsafe fn count(usage: &ExpertUsage, index: usize, ids: *mut RawTensor, passes: &Passes) {
    // SAFETY: the caller's contract.
    let ids = unsafe { custom_node(ids) };
    let [top_k, tokens, ..] = ids.ne().map(|n| n.unsigned_abs() as usize);
    let [stride_k, stride_token, ..] = ids.nb();
    let base = ids.data().cast::<u8>();
    let at = |token: usize, slot: usize| -> i32 {
        // SAFETY: the caller's contract; token and slot are within the tensor's dimensions.
        unsafe { base.add(token * stride_token + slot * stride_k).cast::<i32>().read_unaligned() }
    };
    let places = (0..tokens)
        .filter(|&token| passes.needs(tokens, token))
        .flat_map(|token| (0..top_k).map(move |slot| (token, slot)));
    usage.count_ids(index, places.map(|(token, slot)| at(token, slot)));
}
