//! Options of tests and comparisons.

use std::path::PathBuf;
use terrace_backend::MoveMapped;
use terrace_lanes::Sending;

/// Options for tests and comparisons. The options of stock llama.cpp are heeded with
/// [`Mode::Stock`](super::Mode::Stock), which the program has an option `--stock` for.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TestingOptions {
    /// Layers that stock llama.cpp puts on devices (its -ngl)
    #[arg(long, hide = true, value_name = "N", requires = "stock", default_value_t)]
    pub stock_layers: u32,
    /// First layers whose experts stock llama.cpp keeps in RAM (its --n-cpu-moe)
    #[arg(long, hide = true, value_name = "N", requires = "stock", default_value_t)]
    pub stock_cpu_moe: u32,
    /// Simulated readings of memory: a line with the size left to other programs, then a line per
    /// reading with the size that this process could use
    #[arg(long, hide = true, value_name = "FILE")]
    pub simulated_memory: Option<PathBuf>,
    /// Faults to inject into reads
    #[arg(long, hide = true, value_name = "PLAN")]
    pub inject_fault: Option<String>,
    /// Do not count uses of experts, to measure what that costs
    #[arg(long, hide = true)]
    pub uncounted: bool,
    /// Keep weights in memory in rows, to measure what interleaving them gains
    #[arg(long, hide = true)]
    pub in_rows: bool,
    /// When mapped weights move into memory of the process
    #[arg(long, hide = true, value_enum, default_value_t)]
    pub move_mapped: MoveMapped,
    /// Copying of experts without a copy to devices for prompts, if devices compute large
    /// batches at all.
    #[arg(skip)]
    pub sending: Sending,
}

impl TestingOptions {
    /// Returns the patterns of the tensors that stock llama.cpp keeps in RAM.
    pub(crate) fn stock_patterns(&self) -> Vec<String> {
        // llama.cpp's own pattern, `LLM_FFN_EXPS_REGEX`.
        let of = |layer: u32| format!(r"blk\.{layer}\.ffn_(up|down|gate|gate_up)_(ch|)exps");
        (0..self.stock_cpu_moe).map(of).collect()
    }
}
