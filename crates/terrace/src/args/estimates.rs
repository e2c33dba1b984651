//! What estimates go by.

use crate::source::hit_curve::Hits;
use clap::Args;

/// What estimates go by.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory and I/O")]
pub struct EstimateArgs {
    /// How experts are expected to be reused, for the estimates: typical, uniform (models with random weights), or a trace by
    /// `trace record`
    #[arg(long, value_name = "HOW", env = "TERRACE_HITS", default_value = "typical")]
    pub hits: Hits,
}
