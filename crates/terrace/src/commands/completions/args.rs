//! The options of `terrace completions`.

use clap::Args;
use clap_complete::Shell;

/// `terrace completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell that the script is for
    pub shell: Shell,
}
