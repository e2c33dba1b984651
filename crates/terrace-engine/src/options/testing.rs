//! Options for tests.

use std::path::PathBuf;

/// Options for tests.
#[derive(Clone, Debug, Default)]
pub struct TestingOptions {
    /// A file of simulated memory readings.
    pub simulated_memory: Option<PathBuf>,
    /// Faults to inject into reads (`eio@100`).
    pub faults: Option<String>,
    /// What stock llama.cpp puts on devices.
    pub stock: StockSplit,
    /// Whether uses of experts are not counted, to measure what counting costs.
    pub uncounted: bool,
}

/// What stock llama.cpp puts on the machine's devices, as its own options say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StockSplit {
    /// Number of last layers on devices, the output head counted as one (`-ngl`).
    pub layers: u32,
    /// Number of first layers whose experts stay in RAM all the same (`--n-cpu-moe`).
    pub cpu_moe: u32,
}

impl StockSplit {
    /// Returns the patterns of the tensors that stay in RAM.
    pub(crate) fn patterns(self) -> Vec<String> {
        // llama.cpp's own pattern, `LLM_FFN_EXPS_REGEX`.
        let of = |layer: u32| format!(r"blk\.{layer}\.ffn_(up|down|gate|gate_up)_(ch|)exps");
        (0..self.cpu_moe).map(of).collect()
    }
}
