//! The reference as one Markdown page: each command's own help, under a heading.

use clap::Command;
use std::fmt::Write;

/// The page.
pub fn reference(mut command: Command) -> String {
    command.build();
    let mut page = String::from(
        "# Commands\n\nWritten by `cargo xtask docs` from the program's definitions; do not edit. Options that name a \
         variable can be set in the environment, and under the option's name in the configuration file.\n",
    );
    section(&mut command, "terrace", 2, &mut page);
    page
}

fn section(command: &mut Command, path: &str, depth: usize, page: &mut String) {
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    let heading = "#".repeat(depth.min(4));
    let _ = write!(page, "\n{heading} `{path}`\n\n```text\n{}\n```\n", help.join("\n"));
    for sub in command.get_subcommands_mut().filter(|sub| !sub.is_hide_set()) {
        let path = format!("{path} {}", sub.get_name());
        section(sub, &path, depth + 1, page);
    }
}
