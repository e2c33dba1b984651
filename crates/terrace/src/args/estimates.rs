//! What estimates are based on.

use crate::error::CliError;
use crate::source::hit_curve::Hits;
use clap::Args;
use terrace_engine::options::EstimateOptions;

/// What estimates are based on.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct EstimateArgs {
    /// How often the estimates assume that experts are reused: typical, uniform (as in models with
    /// random weights), or as in a trace from `trace record`
    #[arg(long, value_name = "typical|uniform|TRACE", env = "TERRACE_HITS", default_value = "typical")]
    pub hits: Hits,
}

impl EstimateArgs {
    /// Converts these to the engine's options, for a prompt of `prompt` tokens.
    ///
    /// # Errors
    /// The file cannot be read as a trace.
    pub fn options(&self, prompt: u32) -> Result<EstimateOptions, CliError> {
        let Self { hits } = self;
        Ok(EstimateOptions { prompt, hits: hits.curve()? })
    }
}
