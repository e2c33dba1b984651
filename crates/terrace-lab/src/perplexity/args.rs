//! The options of `terrace perplexity`.

use super::format::Format;
use clap::Args;
use regex::Regex;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_cli::args::{EngineArgs, MODEL_HELP, TestingArgs};
use terrace_cli::args::{Output, output};
use terrace_eval::HELLASWAG_SEQUENCES;

/// `terrace perplexity`.
#[derive(Debug, Args)]
pub struct PerplexityArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", env = "TERRACE_MODEL", help = MODEL_HELP)]
    pub model: Option<OsString>,
    /// Text to predict; one newline at the end of the file is ignored [default with --kld: the text
    /// that the base was made from]
    #[arg(short, long, value_name = "FILE", required_unless_present = "kld")]
    pub file: Option<PathBuf>,
    /// Chunks of the text to evaluate, --ctx tokens each [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
    /// Save the log probabilities of all tokens, 2 bytes each, as a base for --kld, in
    /// llama-perplexity's format
    #[arg(long, value_name = "FILE", value_parser = output(&terrace_eval::BASE_LOGITS_FILE))]
    pub save_logits: Option<Output>,
    /// Measure the KL divergence of the model's predictions from a base, saved by --save-logits or
    /// by llama-perplexity
    #[arg(long, value_name = "BASE", conflicts_with = "save_logits")]
    pub kld: Option<PathBuf>,
    /// Measure the accuracy with which the model chooses the right ending of each task in --file
    /// (six lines per task)
    #[arg(long, conflicts_with_all = ["chunks", "save_logits", "kld"])]
    pub hellaswag: bool,
    /// Number of tasks to evaluate, drawn in the same way as by llama-perplexity
    #[arg(long, value_name = "N", default_value_t = 400, requires = "hellaswag", value_parser = clap::value_parser!(u32).range(1..))]
    pub hellaswag_tasks: u32,
    /// Number of sequences evaluated together, four per task: with more of them a streamed model is
    /// read less often, but rounding differs
    #[arg(long, value_name = "N", default_value_t = HELLASWAG_SEQUENCES, requires = "hellaswag", value_parser = clap::value_parser!(u32).range(4..=256))]
    pub parallel: u32,
    /// Repeat the measurement: after each one, reload the tensors that changed in the model's
    /// files, until none has changed, or as LLAMA_HOTSWAP_CONTROL_FILE says
    /// [env: LLAMA_HOTSWAP_ENABLED=1]
    #[arg(long)]
    pub reload_loop: bool,
    /// With --reload-loop: run this shell command before looking for changes
    /// [env: LLAMA_PERPLEXITY_PRE_RELOAD_SCRIPT=]
    #[arg(long, value_name = "COMMAND")]
    pub pre_reload: Option<OsString>,
    /// Measure the model, then the model with each tensor of the GGUF files in this folder in place of its
    /// own, one after the other. Before that, a copy of the first tensor has to give the model's own figure
    #[arg(long, value_name = "DIR", conflicts_with_all = ["reload_loop", "pre_reload", "save_logits"])]
    pub reload_from: Option<PathBuf>,
    /// With --reload-from: only tensors whose names match [default: all]
    #[arg(long, value_name = "REGEX", requires = "reload_from")]
    pub tensor: Option<Regex>,
    /// Form of the output [default: lines at a terminal, else llama]
    #[arg(long, value_name = "FORM", conflicts_with = "json")]
    pub format: Option<Format>,
    /// Print one JSON object at the end instead of text
    #[arg(long)]
    pub json: bool,
    /// Placement.
    #[command(flatten)]
    pub engine: EngineArgs,
    /// Testing.
    #[command(flatten)]
    pub testing: TestingArgs,
}
