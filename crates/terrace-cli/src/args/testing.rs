//! Options of tests and comparisons.

use clap::{ArgAction, Args};
use terrace_engine::Mode;
use terrace_engine::options::TestingOptions;
use terrace_model::cli::on_off;

/// Options for tests and comparisons.
#[derive(Debug, Clone, Default, Args)]
pub struct TestingArgs {
    /// Run stock llama.cpp without Terrace, as `bench --baseline` does
    #[arg(long, hide = true, conflicts_with = "repack")]
    pub stock: bool,
    /// Repack weights in stock llama.cpp
    #[arg(long, hide = true, requires = "stock", default_value = "off", value_parser = on_off(), action = ArgAction::Set)]
    pub stock_repack: bool,
    /// Those of the engine.
    #[command(flatten)]
    pub options: TestingOptions,
}

impl TestingArgs {
    /// Returns the backend that runs the model. Only llama.cpp itself repacks, so `repack` selects stock
    /// llama.cpp.
    pub fn mode(&self, repack: bool) -> Mode {
        match (self.stock, repack) {
            (true, _) => Mode::Stock { repack: self.stock_repack },
            (false, true) => Mode::Stock { repack: true },
            (false, false) => Mode::Terrace,
        }
    }
}
