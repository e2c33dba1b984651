//! The options of `terrace man`.

use clap::Args;
use std::path::PathBuf;

/// `terrace man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write one page per command into this directory instead of printing the main page
    #[arg(long, value_name = "DIR", conflicts_with = "markdown")]
    pub out: Option<PathBuf>,
    /// Print the reference of all commands as Markdown
    #[arg(long)]
    pub markdown: bool,
}
