//! The options of `terrace completions`.

use clap::Args;
use clap_complete::Shell;

/// `terrace completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell to print the script for
    pub shell: Shell,
}
