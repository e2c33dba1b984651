//! The command line of `terrace perplexity`.

use crate::args::{EngineArgs, MODEL_HELP, TestingArgs};
use clap::Args;
use std::path::PathBuf;
use terrace_eval::HELLASWAG_SEQUENCES;

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
    /// Let the model choose between endings of the texts in --file, six lines a task: accuracy
    #[arg(long, conflicts_with_all = ["chunks", "save_logits", "kld"])]
    pub hellaswag: bool,
    /// Tasks to evaluate, drawn as llama-perplexity draws them
    #[arg(long, value_name = "N", default_value_t = 400, requires = "hellaswag", value_parser = clap::value_parser!(u32).range(1..))]
    pub hellaswag_tasks: u32,
    /// Sequences that are evaluated together, four a task: more of them read a streamed model less often, and round otherwise
    #[arg(long, value_name = "N", default_value_t = HELLASWAG_SEQUENCES, requires = "hellaswag", value_parser = clap::value_parser!(u32).range(4..=256))]
    pub parallel: u32,
    /// Measure again and again: after each measurement take what has changed of the model's files, until nothing has [env:
    /// LLAMA_HOTSWAP_ENABLED=1]
    #[arg(long)]
    pub reload_loop: bool,
    /// With --reload-loop: run this before looking for changes; an exit status other than 0 ends it all [env:
    /// LLAMA_PERPLEXITY_PRE_RELOAD_SCRIPT=]
    #[arg(long, value_name = "SCRIPT")]
    pub pre_reload: Option<PathBuf>,
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
