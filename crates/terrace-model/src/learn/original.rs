//! The keys that the original writes in mode `full`, whatever it has measured.

use std::collections::BTreeMap;

/// Suffix of the names of times.
pub const TIME: &str = "_per_call_us";
/// Number of lanes that the original tells apart.
pub const LANES: usize = 3;

/// Names of its times, without their end.
const TIMES: &[&str] = &[
    "parallel_hot_lane_wall_time",
    "parallel_cold_lane_wall_time",
    "parallel_join_wait_time",
    "parallel_region_wall_time",
    "parallel_overlap_estimate",
    "total_moe_time",
    "expert_matmul_time",
    "routing_time",
    "worklist_time",
    "merge_time",
    "join_time",
    "hot_join_time",
    "cold_join_time",
    "hot_branch_time",
    "cold_branch_time",
    "hot0_branch_time",
    "hot0_expert_matmul_time",
    "hot0_gather_scatter_time",
    "hot1_branch_time",
    "hot1_expert_matmul_time",
    "hot1_gather_scatter_time",
    "hot2_branch_time",
    "hot2_expert_matmul_time",
    "hot2_gather_scatter_time",
    "hot_expert_matmul_time",
    "cold_expert_matmul_time",
    "hot_gather_scatter_time",
    "cold_gather_scatter_time",
    "gate_up_time",
    "gate_time",
    "up_time",
    "down_time",
    "activation_time",
    "pp_dense_total_time",
    "pp_dense_routing_time",
    "pp_dense_worklist_time",
    "pp_dense_hot_prepare_time",
    "pp_dense_hot_ffn_time",
    "pp_dense_cold_prepare_time",
    "pp_dense_cold_ffn_time",
    "pp_dense_merge_time",
    "pp_dense_hot_gate_time",
    "pp_dense_hot_up_time",
    "pp_dense_hot_gate_up_time",
    "pp_dense_hot_down_time",
    "pp_dense_hot_activation_time",
    "pp_dense_cold_gate_time",
    "pp_dense_cold_up_time",
    "pp_dense_cold_gate_up_time",
    "pp_dense_cold_down_time",
    "pp_dense_cold_activation_time",
];

/// Counts of its path for prompts, which has no counterpart.
const OTHER_COUNTS: [&str; 1] = ["pp_dense_layer_calls"];

/// All of its times with their end, each zero.
pub fn times() -> BTreeMap<String, f64> {
    TIMES.iter().map(|name| (format!("{name}{TIME}"), 0.0)).collect()
}

/// Returns true if the original always writes a time of this name, as zero if it has not measured it.
pub fn is_time(name: &str) -> bool {
    name.strip_suffix(TIME).is_some_and(|name| TIMES.contains(&name))
}

/// Counts that are always zero here.
pub fn other_counts() -> impl Iterator<Item = (&'static str, u64)> {
    OTHER_COUNTS.into_iter().map(|name| (name, 0))
}
