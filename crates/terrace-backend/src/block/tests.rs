//! Blocks in hand-made graphs: which are recognised.

use super::*;
use terrace_ggml::testing::graph::TestGraph;

/// Two experts of 4 x 4, both chosen for the one token: gate and up, with a bias, multiplied, and
/// down. `foreign` is computed between gate and up.
fn graph() -> TestGraph {
    let mut graph = TestGraph::new();
    for weights in ["gate_w", "up_w", "down_w"] {
        graph.leaf_of(weights, &[4, 4, 2]);
    }
    graph.leaf_of("input", &[4, 1, 1]);
    graph.leaf_of("bias", &[4, 2]);
    graph.leaf("other", &[1.0; 4]);
    graph.ids("ids", &[0, 1]);
    graph.product("gate", "gate_w", "input", "ids");
    graph.add("foreign", "other", "other");
    graph.product("up", "up_w", "input", "ids");
    graph.add_id("biased", "up", "bias", "ids");
    graph.mul("middle", "gate", "biased");
    graph.product("down", "down_w", "middle", "ids");
    graph
}

fn recognise(graph: &TestGraph, has_bytes: impl Fn(&str) -> bool) -> Option<Block> {
    let nodes = graph.graph();
    let products: Vec<ExpertProduct> = (0..nodes.len())
        .filter(|&node| nodes.node(node).op() == Op::MUL_MAT_ID)
        .map(|node| ExpertProduct {
            node,
            tensor: std::ptr::null(),
            kernels: Kernels::of(DataType::F32).unwrap(),
            experts: 2,
            interleaved: false,
        })
        .collect();
    Block::recognise(&nodes, &products, &Passes::One, false, |tensor| has_bytes(&tensor.name()))
}

#[test]
fn a_block_is_found_around_a_foreign_node() {
    let graph = graph();
    let block = recognise(&graph, |_| true).unwrap();
    assert_eq!((block.first.len(), block.steps.len(), block.replaced.len()), (2, 2, 4));
}

#[test]
fn a_product_with_the_routers_weights_belongs_to_it() {
    let weighed = |weights: &[i64], used_twice: bool| {
        let mut graph = graph();
        graph.leaf_of("weights", weights);
        graph.mul("weighed", "down", "weights");
        if used_twice {
            graph.add("sum", "weighed", "down");
        }
        let mut block = recognise(&graph, |_| true).unwrap();
        let last = block.last;
        block.take_in_results(&graph.graph(), |_| true);
        (block.weights.is_some(), block.contains(last), block.last - last)
    };
    assert_eq!(weighed(&[1, 2], false), (true, true, 1));
    assert_eq!(weighed(&[1, 2], true), (false, true, 0), "the result itself is used");
    assert_eq!(weighed(&[4, 2], false), (false, true, 0), "not one weight for each row");
}

#[test]
fn a_bias_of_its_result_belongs_to_it() {
    let taken = |bias: &[i64], ids: &str, in_memory: bool| {
        let mut graph = graph();
        graph.leaf_of("weights", &[1, 2]);
        graph.leaf_of("down_b", bias);
        graph.ids("others", &[1, 0]);
        graph.add_id("moved", "down", "down_b", ids);
        graph.mul("weighed", "moved", "weights");
        let mut block = recognise(&graph, |_| true).unwrap();
        let last = block.last;
        block.take_in_results(&graph.graph(), |tensor| in_memory || tensor.name() != "down_b");
        (block.bias.is_some(), block.weights.is_some(), block.last - last)
    };
    assert_eq!(taken(&[4, 2], "ids", true), (true, true, 2));
    assert_eq!(taken(&[4, 2], "ids", false), (false, false, 0), "not in memory");
    assert_eq!(taken(&[4, 2], "others", true), (false, false, 0), "of other experts");
    assert_eq!(taken(&[4, 3], "ids", true), (false, false, 0), "of more experts");
}

#[test]
fn a_bias_that_is_not_in_memory_is_not_captured() {
    assert!(recognise(&graph(), |name| name != "bias").is_none());
}

#[test]
fn foreign_nodes_leave_the_inputs_alone() {
    for read in ["input", "ids", "bias"] {
        let graph = graph();
        // As ggml's allocator does with memory whose last use is over.
        let place = graph.tensor(read).data();
        graph.tensor("foreign").set_data(place);
        assert!(recognise(&graph, |_| true).is_none(), "{read}");
    }
}
