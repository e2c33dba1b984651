//! Gated linear units by kernels of Terrace's own, where these may round otherwise than ggml.
//!
//! GLU nodes become custom nodes for the duration of a run. Elements do not depend on each other, so that tokens of a pass
//! have the bits that they have alone, and in a block of experts.

use super::custom::{self, CustomNode};
use crate::glu::Unit;
use crate::moe::activations::{row_at, rows_of};
use std::ffi::{c_int, c_void};
use terrace_ggml::cpu::{RawTensor, custom_node};
use terrace_ggml::{Graph, SavedOp};
use terrace_kernels::glu::GluRow;

/// Elements of a task: a multiple of every vector's.
const TASK: usize = 512;

/// The gated linear units of a graph.
#[derive(Default)]
pub struct Glus(Vec<GluNode>);

struct GluNode {
    /// Its index in the graph.
    node: usize,
    saved: Option<SavedOp>,
    unit: Unit,
}

impl CustomNode for GluNode {
    fn index(&self) -> usize {
        self.node
    }

    fn saved(&mut self) -> &mut Option<SavedOp> {
        &mut self.saved
    }
}

impl Glus {
    /// Finds a graph's units, but for nodes of which `is_rewritten` says that others compute them.
    pub fn find(&mut self, graph: &Graph<'_>, is_rewritten: impl Fn(usize) -> bool) {
        self.0.clear();
        self.0.extend(
            (0..graph.len())
                .filter(|&node| !is_rewritten(node))
                .filter_map(|node| Some(GluNode { node, saved: None, unit: Unit::of(graph.node(node))? })),
        );
    }

    /// Forgets the last graph.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Number of units found.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Turns the nodes into custom nodes until [`Glus::restore`].
    pub fn rewrite(&mut self, graph: &Graph<'_>) {
        custom::rewrite(&mut self.0, graph, run);
    }

    /// Puts the nodes back.
    pub fn restore(&mut self, graph: &Graph<'_>) {
        custom::restore(&mut self.0, graph);
    }
}

/// The custom node's function.
///
/// # Safety
/// `userdata` is a [`GluNode`] of the run; called by ggml on all threads of the run.
unsafe extern "C" fn run(dst: *mut RawTensor, ith: c_int, nth: c_int, userdata: *mut c_void) {
    // SAFETY: `rewrite` put a live GluNode there; ggml passes the live node.
    let (unit, dst) = unsafe { ((*userdata.cast::<GluNode>()).unit, custom_node(dst)) };
    let (Some(first), second) = (dst.src(0), dst.src(1)) else { return };
    let sources = [first, second.unwrap_or(first)];
    let (ith, nth) = (ith.unsigned_abs() as usize, nth.unsigned_abs() as usize);
    let of_row = unit.width.div_ceil(TASK);
    let tasks = rows_of(dst) * of_row;
    for task in tasks * ith / nth..tasks * (ith + 1) / nth {
        let (row, from) = (task / of_row, task % of_row * TASK);
        let [gate, up] = unit.inputs.map(|(operand, skip)| {
            let at = sources[operand].data().cast::<u8>().wrapping_add(row_at(sources[operand], row));
            at.cast::<f32>().wrapping_add(skip + from).cast_const()
        });
        let out = dst.data().cast::<u8>().wrapping_add(row_at(dst, row)).cast::<f32>().wrapping_add(from);
        let row = GluRow { gate, up, biases: [std::ptr::null(); 2], out };
        // SAFETY: operands and result have the rows, whose elements of this task are this thread's; operands are computed.
        unsafe { unit.glu.run(row, TASK.min(unit.width - from)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_ggml::GluOp;
    use terrace_ggml::cpu::CpuBackend;
    use terrace_ggml::testing::graph::TestGraph;

    /// Three rows wider than a task, with a rest that fills no vector.
    const WIDTH: usize = 2 * TASK + 37;

    #[test]
    fn units_are_ggmls_and_the_same_for_any_number_of_threads() {
        for op in [GluOp::GEGLU, GluOp::GEGLU_QUICK] {
            for swapped in [false, true] {
                let mut graph = TestGraph::new();
                let value = |i: usize| ((i * 7919) % 2003) as f32 / 100.0 - 10.0;
                graph.matrix("halves", 2 * WIDTH, &(0..6 * WIDTH).map(value).collect::<Vec<_>>());
                graph.glu("unit", op, "halves", swapped);
                let of_ggml = computed(&graph, 1, false);
                let ours = computed(&graph, 1, true);
                assert!(ours == computed(&graph, 3, true), "{op:?}: the threads matter");
                assert!(ours != of_ggml, "{op:?}: computed by ggml");
                for (ours, of_ggml) in ours.iter().zip(&of_ggml) {
                    // ggml's tables have 11 bits of a gate, and of its activation.
                    let error = 2e-3 * of_ggml.abs() + 2e-3;
                    assert!((ours - of_ggml).abs() <= error, "{op:?}: {ours}, not {of_ggml}");
                }
            }
        }
    }

    fn computed(graph: &TestGraph, threads: usize, by_ours: bool) -> Vec<f32> {
        let nodes = graph.graph();
        let mut units = Glus::default();
        if by_ours {
            units.find(&nodes, |_| false);
            assert_eq!(units.len(), 1);
        }
        units.rewrite(&nodes);
        CpuBackend::new(threads).run(&nodes, 0, nodes.len());
        units.restore(&nodes);
        graph.values("unit")
    }
}
