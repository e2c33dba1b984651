//! What estimates go by.

use crate::error::CliError;
use crate::source::hit_curve::Hits;
use clap::Args;
use terrace_engine::options::EstimateOptions;

/// What estimates go by.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct EstimateArgs {
    /// How experts are expected to be reused, for the estimates: typical, uniform (models with random weights), or a trace by
    /// `trace record`
    #[arg(long, value_name = "HOW", env = "TERRACE_HITS", default_value = "typical")]
    pub hits: Hits,
}

impl EstimateArgs {
    /// As the engine takes them, for a prompt of `prompt` tokens.
    ///
    /// # Errors
    /// A trace that is none.
    pub fn options(&self, prompt: u32) -> Result<EstimateOptions, CliError> {
        let Self { hits } = self;
        Ok(EstimateOptions { prompt, hits: hits.curve()? })
    }
}
