//! `terrace completions`.

mod args;

pub use args::CompletionsArgs;

use crate::error::CliError;
use crate::term::print;
use clap::Command;

/// Prints a shell's completion script for `command`.
///
/// # Errors
/// Stdout cannot be written.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "terrace", &mut script);
    print(&String::from_utf8_lossy(&script))
}
