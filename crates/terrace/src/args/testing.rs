//! What tests and comparisons need.

use super::OnOff;
use clap::Args;
use std::path::PathBuf;
use terrace_engine::Mode;
use terrace_engine::options::TestingOptions;

/// What tests and comparisons need.
#[derive(Debug, Clone, Args)]
pub struct TestingArgs {
    /// Run stock llama.cpp without Terrace, as `bench --baseline` does
    #[arg(long, hide = true, conflicts_with = "repack")]
    pub stock: bool,
    /// Whether stock llama.cpp repacks weights
    #[arg(long, hide = true, requires = "stock", default_value = "off")]
    pub stock_repack: OnOff,
    /// Simulated readings of memory: a line with the size left to other programs, then a line per
    /// reading with the size that this process could use
    #[arg(long, hide = true, value_name = "FILE")]
    pub simulated_memory: Option<PathBuf>,
    /// Length of the prompt that the estimates assume
    #[arg(long, hide = true, value_name = "TOKENS", default_value_t = 512)]
    pub expected_prompt: u32,
    /// Faults to inject into reads
    #[arg(long, hide = true, value_name = "PLAN")]
    pub inject_fault: Option<String>,
}

impl TestingArgs {
    /// Converts these to the engine's options, the backend that runs the model, and the length of
    /// the prompt for estimates. Only llama.cpp itself repacks, so `repack` selects stock
    /// llama.cpp.
    pub fn options(&self, repack: bool) -> (TestingOptions, Mode, u32) {
        let Self { stock, stock_repack, simulated_memory, expected_prompt, inject_fault } = self;
        let mode = match (stock, repack) {
            (true, _) => Mode::Stock { repack: *stock_repack == OnOff::On },
            (false, true) => Mode::Stock { repack: true },
            (false, false) => Mode::Terrace,
        };
        let testing =
            TestingOptions { simulated_memory: simulated_memory.clone(), faults: inject_fault.clone() };
        (testing, mode, *expected_prompt)
    }
}
