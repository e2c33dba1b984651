//! The options of `terrace top`.

use clap::Args;
use terrace_cli::remote::ServerArgs;

/// `terrace top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Address of the server [default: that of --server]
    #[arg(value_name = "URL")]
    pub url: Option<String>,
    /// The server.
    #[command(flatten)]
    pub of: ServerArgs,
    /// Print one frame as text, and end
    #[arg(long)]
    pub once: bool,
}
