//! Unknown names, and the nearest known ones.

use super::aliases::renamed_variables;
use clap::Command;
use std::ffi::OsString;
use terrace_model::configuration::variable;
use terrace_server::nearest;

/// Environment variables that belong to no option. The last one is read before `main` (`terrace-ggml/cmake/levels`).
const OTHER_VARIABLES: [&str; 4] =
    ["TERRACE_BACKENDS", "TERRACE_BUNDLED_MODEL", "TERRACE_LOG", "TERRACE_VARIANT"];

/// Warnings about unknown `TERRACE_…` variables.
pub fn unknown_variables(command: &Command, names: impl Iterator<Item = OsString>) -> Vec<String> {
    let mut known: Vec<String> = OTHER_VARIABLES.map(String::from).to_vec();
    for sub in std::iter::once(command).chain(command.get_subcommands()) {
        let variables = sub.get_arguments().filter_map(|a| a.get_env());
        known.extend(variables.map(|name| name.to_string_lossy().into_owned()));
    }
    known.extend(
        renamed_variables()
            .filter(|(_, option)| known.contains(&variable(option)))
            .map(|(old, _)| old)
            .collect::<Vec<_>>(),
    );
    let mut warnings: Vec<String> = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.starts_with("TERRACE_") && !known.contains(name))
        .map(|name| {
            format!("unknown environment variable {name}{}", nearest(&name, known.iter().map(String::as_str)))
        })
        .collect();
    warnings.sort();
    warnings
}

/// The words of a text on one line.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn unknown_variables_come_with_the_nearest() {
        let names = ["TERRACE_RAM_BUDGTE", "TERRACE_CTX", "TERRACE_BUNDLED_MODEL", "PATH"];
        let warnings = unknown_variables(&Cli::command(), names.into_iter().map(OsString::from));
        assert_eq!(
            warnings,
            ["unknown environment variable TERRACE_RAM_BUDGTE; did you mean `TERRACE_RAM_BUDGET`?"]
        );
    }
}
