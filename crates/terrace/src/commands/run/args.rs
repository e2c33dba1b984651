//! The options of `terrace run`.

use crate::args::{EngineArgs, MODEL_HELP, SamplingArgs, TestingArgs};
use clap::Args;
use std::path::PathBuf;
use terrace_engine::OnReload;

/// `terrace run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[doc = "MODEL."]
    #[arg(value_name = "MODEL", env = "TERRACE_MODEL", help = MODEL_HELP)]
    pub model: Option<String>,

    /// The prompt
    #[arg(short, long, value_name = "TEXT", conflicts_with = "file")]
    pub prompt: Option<String>,
    /// Read the prompt from a file, `-` for stdin; one newline at its end is not part of it
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Apply the model's chat template; without a prompt: a conversation
    #[arg(long)]
    pub chat: bool,
    /// The system message of --chat
    #[arg(long, value_name = "TEXT", requires = "chat")]
    pub system: Option<String>,
    /// Print one JSON object at the end instead of the text
    #[arg(long)]
    pub json: bool,

    /// Write a timeline of what was read, waited for and computed, for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE", env = "TERRACE_TIMELINE")]
    pub timeline: Option<PathBuf>,

    /// Take tensors over that change in the model's files while it runs, and look for them when SIGHUP comes
    #[arg(long, env = "TERRACE_WATCH")]
    pub watch: bool,
    /// What becomes of the context when tensors are replaced: `clear` computes it anew with the new weights, `keep` leaves it
    /// as the old ones made it
    #[arg(long, value_name = "WHAT", env = "TERRACE_ON_RELOAD", default_value = "clear", requires = "watch")]
    pub on_reload: OnReload,

    /// Tokens to generate at most [default: until the model ends or the context is full]
    #[arg(short, value_name = "N", env = "TERRACE_N")]
    pub n: Option<usize>,
    /// Sampling.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Placement.
    #[command(flatten)]
    pub engine: EngineArgs,

    /// No timeline, whatever the environment or the configuration file says (for the runs of `bench`)
    #[arg(long, hide = true)]
    pub no_timeline: bool,
    /// Testing.
    #[command(flatten)]
    pub testing: TestingArgs,
}
