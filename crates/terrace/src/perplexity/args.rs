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
    /// The text to predict; one newline at its end is not part of it [default with --kld: what the base was made of]
    #[arg(short, long, value_name = "FILE", required_unless_present = "kld")]
    pub file: Option<PathBuf>,
    /// Chunks of the text to evaluate, --ctx tokens each [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
    /// Keep the log probabilities of all tokens, 2 bytes each, as a base for --kld; llama-perplexity's format
    #[arg(long, value_name = "FILE")]
    pub save_logits: Option<PathBuf>,
    /// Compare the model's predictions with those of a base, kept by --save-logits or llama-perplexity: KL divergence
    #[arg(long, value_name = "BASE", conflicts_with = "save_logits")]
    pub kld: Option<PathBuf>,
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
