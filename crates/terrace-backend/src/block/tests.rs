//! Blocks in hand-made graphs: which are recognised.

use super::*;
use terrace_ggml::GluOp;
use terrace_ggml::cpu::Kernels;
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
    recognise_with(graph, false, has_bytes)
}

/// `fast`: kernels may add in an order of their own.
fn recognise_with(graph: &TestGraph, fast: bool, has_bytes: impl Fn(&str) -> bool) -> Option<Block> {
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
    Block::recognise(&nodes, &products, &Passes::One, fast, |tensor| has_bytes(&tensor.name()))
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

/// Two experts, both chosen for the one token, whose middle is a unit that `unit` adds.
fn gated(widths: [i64; 2], unit: impl Fn(&mut TestGraph)) -> TestGraph {
    let mut graph = TestGraph::new();
    let [first, middle] = widths;
    graph.leaf_of("gate_w", &[4, first, 2]);
    graph.leaf_of("up_w", &[4, first, 2]);
    graph.leaf_of("down_w", &[middle, 4, 2]);
    graph.leaf_of("input", &[4, 1, 1]);
    let values = |from: i64| (0..2 * first).map(|i| (i + from) as f32).collect::<Vec<_>>();
    graph.matrix("gate_b", usize::try_from(first).unwrap(), &values(1));
    graph.matrix("up_b", usize::try_from(first).unwrap(), &values(-3));
    graph.ids("ids", &[0, 1]);
    graph.product("gate", "gate_w", "input", "ids");
    unit(&mut graph);
    graph.product("down", "down_w", "middle", "ids");
    graph
}

/// Rows of scratch as a block's gated unit leaves them, for expert 1: `filled` is what products left there.
fn row_of_unit(block: &Block, filled: &[f32]) -> Vec<f32> {
    let unit = block.gated.as_ref().unwrap();
    let mut scratch = filled.to_vec();
    let floats = scratch.as_mut_ptr();
    let first = |span: Span| (floats.wrapping_add(span.at + span.skip).cast(), span.width * size_of::<f32>());
    // SAFETY: one row of the block's scratch; the graph is alive.
    unsafe { unit.run(1, 1, first) };
    let result = unit.result();
    let from = result.at + result.skip;
    scratch[from..from + block.down.inner].to_vec()
}

#[test]
fn a_unit_and_the_biases_of_its_operands_are_one_step() {
    let graph = gated([4, 4], |graph| {
        graph.product("up", "up_w", "input", "ids");
        graph.add_id("up_biased", "up", "up_b", "ids");
        graph.add_id("gate_biased", "gate", "gate_b", "ids");
        graph.swiglu_oai("middle", "gate_biased", "up_biased");
    });
    let exact = recognise(&graph, |_| true).unwrap();
    assert!(exact.gated.is_none());
    let block = recognise_with(&graph, true, |_| true).unwrap();
    assert_eq!((block.steps.len(), block.gated.as_ref().unwrap().from), (3, 0));
    // Rows of gates and of what they multiply, without places of other results.
    assert_eq!((exact.floats, block.floats), (5 * ALIGN, 2 * ALIGN));
    let mut filled = vec![0.0; block.floats];
    filled[..4].copy_from_slice(&[-7.0, -6.0, -5.0, -9.0]);
    filled[ALIGN..ALIGN + 4].copy_from_slice(&[1.0, 2.0, -30.0, 0.5]);
    // Expert 1's biases: 5 to 8, and 1 to 4.
    let expected = [(-2.0f32, 2.0f32), (0.0, 4.0), (2.0, -7.0), (-1.0, 4.5)];
    for (found, (x, y)) in row_of_unit(&block, &filled).into_iter().zip(expected) {
        let expected = x / (1.0 + (-1.702 * x).exp()) * (y + 1.0);
        assert!((found - expected).abs() < 1e-5, "{found}, not {expected}");
    }
}

#[test]
fn a_unit_of_halves_and_one_bias_of_both_are_one_step() {
    for swapped in [false, true] {
        let graph = gated([8, 4], |graph| {
            graph.add_id("biased", "gate", "gate_b", "ids");
            graph.glu("middle", GluOp::GEGLU_QUICK, "biased", swapped);
        });
        let block = recognise_with(&graph, true, |_| true).unwrap();
        assert_eq!((block.gated.as_ref().unwrap().from, block.floats), (0, ALIGN));
        let mut filled = vec![0.0; block.floats];
        filled[..8].copy_from_slice(&[-9.0, -8.0, -10.0, -12.0, 1.0, 2.0, 3.0, 4.0]);
        // Expert 1's bias: 9 to 16.
        let halves = [[0.0f32, 2.0, 1.0, 0.0], [14.0f32, 16.0, 18.0, 20.0]];
        for (i, found) in row_of_unit(&block, &filled).into_iter().enumerate() {
            let (x, y) = if swapped { (halves[1][i], halves[0][i]) } else { (halves[0][i], halves[1][i]) };
            let expected = x / (1.0 + (-1.702 * x).exp()) * y;
            assert!(
                (found - expected).abs() < 1e-5 * expected.abs().max(1.0),
                "{swapped}: {found}, not {expected}"
            );
        }
    }
}

#[test]
fn what_else_a_unit_uses_is_computed_before_it() {
    // A bias that is added twice.
    let graph = gated([4, 4], |graph| {
        graph.product("up", "up_w", "input", "ids");
        graph.add_id("once", "gate", "gate_b", "ids");
        graph.add_id("twice", "once", "gate_b", "ids");
        graph.swiglu_oai("middle", "twice", "up");
    });
    let block = recognise_with(&graph, true, |_| true).unwrap();
    assert_eq!((block.steps.len(), block.gated.as_ref().unwrap().from), (3, 1));
    // Units that ggml computes by vectors stay its.
    let graph = gated([8, 4], |graph| graph.glu("middle", GluOp::SWIGLU, "gate", false));
    let block = recognise_with(&graph, true, |_| true).unwrap();
    assert!(block.gated.is_none() && block.steps.len() == 1);
}
