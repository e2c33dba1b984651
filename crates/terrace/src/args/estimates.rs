//! What estimates are based on.

use crate::error::CliError;
use crate::source::hit_curve::Hits;
use clap::Args;
use terrace_engine::options::EstimateOptions;
use terrace_plan::{Expected, ExpectedSource};
use terrace_store::PolicyKind;

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
    /// Share of drafts of tokens that is expected to be right, for what the plan says of --draft
    /// [default: 0.7]
    #[arg(long, value_name = "SHARE", env = "TERRACE_EXPECT_RIGHT", value_parser = share)]
    pub expect_right: Option<f64>,
}

impl EstimateArgs {
    /// Converts these to the engine's options. A trace is replayed with the run's `policy`.
    ///
    /// # Errors
    /// The file cannot be read as a trace.
    pub fn options(&self, policy: &PolicyKind) -> Result<EstimateOptions, CliError> {
        let Self { hits, expect_prompt, expect_output, expect_right } = self;
        let assumed = Expected::default();
        let expected = Expected {
            prompt: expect_prompt.unwrap_or(assumed.prompt),
            output: expect_output.unwrap_or(assumed.output),
            source: match (expect_prompt, expect_output) {
                (None, None) => assumed.source,
                _ => ExpectedSource::Stated,
            },
        };
        Ok(EstimateOptions { expected, hits: hits.curve(policy)?, drafts_right: *expect_right })
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a number from 0 to 1".into())
}
