//! `terrace completions`.

mod args;

pub use args::CompletionsArgs;

use crate::cli::Cli;
use crate::error::CliError;
use crate::term::print;
use clap::CommandFactory;

/// Prints a shell's completion script.
///
/// # Errors
/// Stdout's.
pub fn completions(args: &CompletionsArgs) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "terrace", &mut script);
    print(&String::from_utf8_lossy(&script))
}
