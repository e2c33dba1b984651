//! What estimates are based on.

use crate::error::CliError;
use crate::source::hit_curve::Hits;
use clap::Args;
use terrace_engine::options::EstimateOptions;
use terrace_plan::{Expected, ExpectedSource};

/// What estimates are based on.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct EstimateArgs {
    /// How often the estimates assume that experts are reused: typical, uniform (as in models with
    /// random weights), or as in a trace from `trace record`
    #[arg(long, value_name = "typical|uniform|TRACE", env = "TERRACE_HITS", default_value = "typical")]
    pub hits: Hits,
    /// Usual length of prompts: plans minimise the time of a prompt and its answer together
    /// [default: as in earlier runs of the model, at first 512]
    #[arg(long, value_name = "TOKENS", env = "TERRACE_EXPECT_PROMPT", value_parser = clap::value_parser!(u32).range(1..))]
    pub expect_prompt: Option<u32>,
    /// Usual length of answers [default: as in earlier runs of the model, at first 256]
    #[arg(long, value_name = "TOKENS", env = "TERRACE_EXPECT_OUTPUT", value_parser = clap::value_parser!(u32).range(1..))]
    pub expect_output: Option<u32>,
}

impl EstimateArgs {
    /// Converts these to the engine's options.
    ///
    /// # Errors
    /// The file cannot be read as a trace.
    pub fn options(&self) -> Result<EstimateOptions, CliError> {
        let Self { hits, expect_prompt, expect_output } = self;
        let assumed = Expected::default();
        let expected = Expected {
            prompt: expect_prompt.unwrap_or(assumed.prompt),
            output: expect_output.unwrap_or(assumed.output),
            source: match (expect_prompt, expect_output) {
                (None, None) => assumed.source,
                _ => ExpectedSource::Stated,
            },
        };
        Ok(EstimateOptions { expected, hits: hits.curve()? })
    }
}
