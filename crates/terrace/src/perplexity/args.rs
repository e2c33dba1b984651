//! The command line of `terrace perplexity`.

use crate::cli::{EngineArgs, MODEL_HELP, TestingArgs};
use clap::Args;
use std::path::PathBuf;

/// `terrace perplexity`.
#[derive(Debug, Args)]
pub struct PerplexityArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", env = "TERRACE_MODEL", help = MODEL_HELP)]
    pub model: Option<String>,
    /// The text to predict; one newline at its end is not part of it
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Chunks of the text to evaluate, --ctx tokens each [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
    /// Print one JSON object at the end instead of lines
    #[arg(long)]
    pub json: bool,
    /// Placement.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Testing.
    #[command(flatten)]
    pub testing: TestingArgs,
}
