//! Learn files: how often each expert was used.

use super::Output;
use std::path::PathBuf;
use terrace_model::learn::Reported;

/// Learn files: how often each expert was used.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Advanced")]
pub struct LearnOptions {
    /// Start with the experts that FILE counts as used most: copy them to accelerators, and read the
    /// next ones ahead into RAM. A learn file of one kind of work, written by --learn-to or
    /// `terrace experts learn`; see the guide
    #[arg(long, value_name = "FILE", env = "TERRACE_LEARNED")]
    pub learned: Option<PathBuf>,
    /// Write how often each expert is used to FILE, after each response and at the end
    #[arg(long, value_name = "FILE", env = "TERRACE_LEARN_TO", conflicts_with = "auto_learn", value_parser = super::output(&crate::learn::FILE))]
    pub learn_to: Option<Output>,
    /// Contents of the file; clients of a server may change it
    #[arg(long, value_name = "full|update|off", env = "TERRACE_LEARN_MODE", default_value_t)]
    pub learn_mode: Reported,
    /// Keep the file of --learned up to date: it need not exist yet, and is written after each
    /// response, with half of the counts that it had at the start
    #[arg(long, env = "TERRACE_AUTO_LEARN", requires = "learned")]
    pub auto_learn: bool,
    /// Evaluate TEXT once after the load and forget it, so that accelerators have the experts it uses
    /// before the first request
    #[arg(long, value_name = "TEXT", env = "TERRACE_WARMUP_PROMPT")]
    pub warmup_prompt: Option<String>,
}
