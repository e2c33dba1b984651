//! The options of `terrace man`.

use clap::Args;
use terrace_cli::args::{Output, output_or_folder};
use terrace_cli::written;

/// `terrace man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write one page per command into this directory instead of printing the main page
    #[arg(long, value_name = "DIR", conflicts_with = "markdown", value_parser = output_or_folder(&written::MAN_PAGE))]
    pub out: Option<Output>,
    /// Print the reference of all commands as Markdown
    #[arg(long)]
    pub markdown: bool,
    /// Print the keys of the configuration file, a line each
    #[arg(long, hide = true, conflicts_with_all = ["markdown", "out"])]
    pub keys: bool,
}
