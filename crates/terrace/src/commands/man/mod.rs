//! `terrace man`.

mod args;
mod markdown;

pub use args::ManArgs;

use crate::config::known_keys;
use clap::Command;
use std::path::Path;
use terrace_cli::error::CliError;
use terrace_cli::term::print;
use terrace_cli::whole_file;
use terrace_cli::written::MAN_PAGE;
use terrace_platform::input_file::{self, MAX_TEXT};

/// Prints the manual page of `command`, writes one page for it and for each of its subcommands, or
/// prints the reference.
///
/// # Errors
/// Stdout or the directory cannot be written.
pub fn man(args: &ManArgs, command: Command) -> Result<(), CliError> {
    if args.keys {
        let keys = known_keys().into_keys().map(|key| format!("{key}\n"));
        return print(&keys.collect::<String>());
    }
    let command = documented(command);
    if args.markdown {
        return print(&markdown::reference(command));
    }
    if let Some(dir) = &args.out {
        return write(command, dir);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut page)
        .map_err(|source| CliError::Io { what: "man".into(), source })?;
    print(&String::from_utf8_lossy(&page))
}

fn write(command: Command, dir: &Path) -> Result<(), CliError> {
    let failed = |source| CliError::Io { what: dir.display().to_string(), source };
    std::fs::create_dir_all(dir).map_err(failed)?;
    let made = tempfile::tempdir().map_err(failed)?;
    clap_mangen::generate_to(command, &made).map_err(failed)?;
    for page in std::fs::read_dir(&made).map_err(failed)? {
        let page = page.map_err(failed)?;
        let text = input_file::read_regular(&page.path(), MAX_TEXT).map_err(failed)?;
        whole_file::write_bytes(&dir.join(page.file_name()), &MAN_PAGE, &text)?;
    }
    Ok(())
}

/// The command with help that does not depend on the environment: variables by name, without their
/// values.
fn documented(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let command = command.mut_args(|arg| arg.hide_env_values(true)).term_width(100);
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, documented))
}
