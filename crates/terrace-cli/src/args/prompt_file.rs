//! The file in which `terrace run` keeps its conversation.

use super::{Output, output};
use clap::Args;

/// The file in which `terrace run` keeps its conversation.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Memory")]
pub struct PromptFileArgs {
    /// Keep what the context holds at the end in FILE, and reuse as much of it as the prompt begins
    /// with, which is then not computed again
    #[arg(long, value_name = "FILE", env = "TERRACE_PROMPT_CACHE", value_parser = output(&terrace_engine::prompt_cache::FILE))]
    pub prompt_cache: Option<Output>,
    /// Leave the file of --prompt-cache as it is
    #[arg(long, requires = "prompt_cache")]
    pub prompt_cache_ro: bool,
}
