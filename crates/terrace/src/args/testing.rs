//! What tests and comparisons need.

use super::OnOff;
use clap::Args;
use std::path::PathBuf;
use terrace_engine::Mode;
use terrace_engine::options::{StockSplit, TestingOptions};

/// What tests and comparisons need.
#[derive(Debug, Clone, Args)]
pub struct TestingArgs {
    /// Run stock llama.cpp without Terrace, as `bench --baseline` does
    #[arg(long, hide = true, conflicts_with = "repack")]
    pub stock: bool,
    /// Whether stock llama.cpp repacks weights
    #[arg(long, hide = true, requires = "stock", default_value = "off")]
    pub stock_repack: OnOff,
    /// Layers that stock llama.cpp puts on devices (its -ngl)
    #[arg(long, hide = true, value_name = "N", requires = "stock", default_value_t = 0)]
    pub stock_layers: u32,
    /// First layers whose experts stock llama.cpp keeps in RAM (its --n-cpu-moe)
    #[arg(long, hide = true, value_name = "N", requires = "stock", default_value_t = 0)]
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
}

impl Default for TestingArgs {
    fn default() -> Self {
        Self {
            stock: false,
            stock_repack: OnOff::Off,
            stock_layers: 0,
            stock_cpu_moe: 0,
            simulated_memory: None,
            inject_fault: None,
            uncounted: false,
        }
    }
}

impl TestingArgs {
    /// Converts these to the engine's options and the backend that runs the model. Only llama.cpp
    /// itself repacks, so `repack` selects stock llama.cpp.
    pub fn options(&self, repack: bool) -> (TestingOptions, Mode) {
        let Self {
            stock,
            stock_repack,
            stock_layers,
            stock_cpu_moe,
            simulated_memory,
            inject_fault,
            uncounted,
        } = self;
        let mode = match (stock, repack) {
            (true, _) => Mode::Stock { repack: *stock_repack == OnOff::On },
            (false, true) => Mode::Stock { repack: true },
            (false, false) => Mode::Terrace,
        };
        let testing = TestingOptions {
            simulated_memory: simulated_memory.clone(),
            faults: inject_fault.clone(),
            stock: StockSplit { layers: *stock_layers, cpu_moe: *stock_cpu_moe },
            uncounted: *uncounted,
        };
        (testing, mode)
    }
}
