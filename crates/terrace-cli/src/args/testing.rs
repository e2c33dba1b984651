//! Options of tests and comparisons.

use super::OnOff;
use clap::Args;
use terrace_engine::Mode;
use terrace_engine::options::TestingOptions;

/// Options for tests and comparisons.
#[derive(Debug, Clone, Args)]
pub struct TestingArgs {
    /// Run stock llama.cpp without Terrace, as `bench --baseline` does
    #[arg(long, hide = true, conflicts_with = "repack")]
    pub stock: bool,
    /// Repack weights in stock llama.cpp
    #[arg(long, hide = true, requires = "stock", default_value = "off")]
    pub stock_repack: OnOff,
    /// Those of the engine.
    #[command(flatten)]
    pub options: TestingOptions,
}

impl Default for TestingArgs {
    fn default() -> Self {
        Self { stock: false, stock_repack: OnOff::Off, options: TestingOptions::default() }
    }
}

impl TestingArgs {
    /// Returns the backend that runs the model. Only llama.cpp itself repacks, so `repack` selects stock
    /// llama.cpp.
    pub fn mode(&self, repack: bool) -> Mode {
        match (self.stock, repack) {
            (true, _) => Mode::Stock { repack: self.stock_repack == OnOff::On },
            (false, true) => Mode::Stock { repack: true },
            (false, false) => Mode::Terrace,
        }
    }
}
