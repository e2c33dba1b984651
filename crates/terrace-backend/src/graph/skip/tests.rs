//! Skipped layers in hand-made graphs: which nodes are skipped, kept, or refused.

use super::*;
use terrace_ggml::Op;
use terrace_ggml::cpu::{CpuBackend, RunStatus};
use terrace_ggml::testing::graph::TestGraph;

const ONES: [f32; 4] = [1.0; 4];

/// Three layers that add something to the stream; the second computes a factor from weights, which
/// the third uses too.
fn model() -> TestGraph {
    let mut graph = TestGraph::new();
    graph.leaf("input", &[1.0, 2.0, 3.0, 4.0]);
    graph.leaf("ones", &ONES);
    graph.leaf("cache", &[0.0; 4]);
    graph.add("l_out-0", "input", "ones");
    graph.add("factor", "ones", "ones");
    graph.mul("ffn-1", "l_out-0", "factor");
    graph.copy("stored-1", "ffn-1", "cache");
    graph.add("l_out-1", "l_out-0", "ffn-1");
    graph.mul("ffn-2", "l_out-1", "factor");
    graph.add("l_out-2", "l_out-1", "ffn-2");
    graph
}

fn ops(graph: &TestGraph) -> Vec<Op> {
    (0..graph.graph().len()).map(|i| graph.graph().node(i).op()).collect()
}

fn run(graph: &TestGraph, layers: &[u32]) -> Result<(), BackendError> {
    let before = ops(graph);
    let mut skips = LayerSkips::default();
    let found = skips.find(&graph.graph(), layers);
    // Found once, skipped repeatedly.
    for _ in 0..2 {
        skips.rewrite(&graph.graph());
        if found.is_ok() {
            let graph = graph.graph();
            assert_eq!(CpuBackend::new(2).run(&graph, 0, graph.len()), RunStatus::Done);
        }
        skips.restore(&graph.graph());
        assert_eq!(ops(graph), before, "nodes are restored");
    }
    found
}

#[track_caller]
fn refused(graph: &TestGraph, layer: u32, part: &str) {
    let error = run(graph, &[layer]).unwrap_err().to_string();
    assert!(error.contains(&format!("layer {layer} ")) && error.contains(part), "{error}");
}

#[test]
fn nothing_skipped_computes_everything() {
    let graph = model();
    run(&graph, &[]).unwrap();
    assert_eq!(graph.values("l_out-1"), [6.0, 9.0, 12.0, 15.0]);
    assert_eq!(graph.values("l_out-2"), [18.0, 27.0, 36.0, 45.0]);
}

#[test]
fn a_skipped_layer_passes_the_stream_on_and_leaves_what_others_need() {
    let graph = model();
    run(&graph, &[1]).unwrap();
    assert_eq!(graph.values("l_out-1"), [2.0, 3.0, 4.0, 5.0]);
    assert_eq!(graph.values("l_out-2"), [6.0, 9.0, 12.0, 15.0], "with the factor of layer 1");
    assert_eq!(graph.values("ffn-1"), [0.0; 4], "never computed");
    assert_eq!(graph.values("cache"), [0.0; 4], "never written");

    // The other layer, then both: the skipped factor has no user left.
    let graph = model();
    run(&graph, &[2]).unwrap();
    assert_eq!(graph.values("l_out-2"), graph.values("l_out-1"));
    let graph = model();
    run(&graph, &[1, 2]).unwrap();
    assert_eq!(graph.values("l_out-2"), [2.0, 3.0, 4.0, 5.0]);
    assert_eq!(graph.values("factor"), [0.0; 4], "nobody's any more");
}

#[test]
fn the_copy_may_be_in_place() {
    let graph = model();
    let stream = graph.tensor("l_out-0").data();
    graph.tensor("l_out-1").set_data(stream);
    run(&graph, &[1]).unwrap();
    assert_eq!(graph.values("l_out-2"), [6.0, 9.0, 12.0, 15.0]);
}

#[test]
fn graphs_without_layers_stay_as_they_are() {
    let mut graph = TestGraph::new();
    graph.leaf("ones", &ONES);
    graph.add("shifted", "ones", "ones");
    run(&graph, &[1]).unwrap();
    assert_eq!(graph.values("shifted"), [2.0; 4]);
}

/// Nothing that was to be skipped is computed silently, whatever the model names it.
#[test]
fn layers_without_names_are_refused() {
    let mut graph = TestGraph::new();
    graph.leaf("ones", &ONES);
    graph.leaf("blk.1.ffn_norm.weight", &ONES);
    graph.mul("normed", "ones", "blk.1.ffn_norm.weight");
    refused(&graph, 1, "does not name the output of any layer");
    run(&graph, &[2]).unwrap();
    assert_eq!(graph.values("normed"), ONES);
}

#[test]
fn what_cannot_be_left_out_is_refused() {
    refused(&model(), 3, "no node l_out-3");
    refused(&model(), 0, "before the first");

    let mut graph = model();
    graph.add("late", "l_out-2", "ffn-1");
    refused(&graph, 1, "ffn-1");

    // Used elsewhere through a step that does not read the stream itself.
    let mut graph = TestGraph::new();
    graph.leaf("ones", &ONES);
    graph.add("l_out-0", "ones", "ones");
    graph.add("a", "l_out-0", "ones");
    graph.add("b", "a", "ones");
    graph.add("l_out-1", "l_out-0", "b");
    graph.add("l_out-2", "l_out-1", "b");
    refused(&graph, 1, "used elsewhere");

    let mut graph = model();
    graph.add("late", "l_out-2", "cache");
    refused(&graph, 1, "cache");

    let mut graph = model();
    graph.add("l_out-1", "l_out-2", "ones");
    refused(&graph, 1, "two nodes l_out-1");

    let mut graph = TestGraph::new();
    graph.leaf("ones", &ONES);
    graph.leaf("more", &[1.0; 8]);
    graph.add("l_out-0", "ones", "ones");
    graph.add("l_out-1", "more", "l_out-0");
    refused(&graph, 1, "shape");
}

/// As an allocator may place it, when the last use of the stream precedes the factor.
#[test]
fn a_stream_that_is_overwritten_is_refused() {
    let graph = model();
    let stream = graph.tensor("l_out-0").data();
    graph.tensor("factor").set_data(stream);
    refused(&graph, 1, "overwrites");
}
