//! `terrace completions`.

mod args;

pub use args::CompletionsArgs;

use clap::Command;
use terrace_cli::error::CliError;
use terrace_cli::term::print;

/// Prints a shell's completion script for `command`.
///
/// # Errors
/// Stdout cannot be written.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "terrace", &mut script);
    print(&String::from_utf8_lossy(&script))
}
