//! The environment variables of options, as clap reads them.

use super::parse_error::ParseError;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command};
use std::ffi::OsString;
use terrace_cli::error::CliError;

/// Parses a command line. Variables that are set to nothing count as unset: compose files and units of
/// services write them for values that were left out.
///
/// # Errors
/// clap's own errors. If a variable causes one, it is [`CliError::Usage`] with the variable's name.
pub fn matches_of(command: &Command, args: &[OsString]) -> Result<ArgMatches, ParseError> {
    let read = without(command.clone(), &|arg| value_of(arg).is_some_and(|value| value.is_empty()));
    read.clone().try_get_matches_from(args).map_err(|error| match error.kind() {
        // Help lists all variables.
        ErrorKind::DisplayHelp => command.clone().try_get_matches_from(args).err().unwrap_or(error).into(),
        _ => match by_variable(&read, args, &error) {
            Some(usage) => usage.into(),
            None => error.into(),
        },
    })
}

/// The command, of which some options do not read their variables.
fn without(command: Command, ignored: &dyn Fn(&Arg) -> bool) -> Command {
    let ids: Vec<_> =
        command.get_arguments().filter(|arg| ignored(arg)).map(|arg| arg.get_id().clone()).collect();
    let command =
        ids.into_iter().fold(command, |command, id| command.mut_arg(id, |arg| arg.env(None::<&str>)));
    command.mut_subcommands(|sub| without(sub, ignored))
}

fn value_of(arg: &Arg) -> Option<OsString> {
    terrace_cli::environment::var_os(arg.get_env()?)
}

/// The error by the variable's name, if the command line alone does not cause it.
fn by_variable(command: &Command, args: &[OsString], error: &clap::Error) -> Option<CliError> {
    let option = option_of(error)?;
    let of_it = |arg: &Arg| is_named(arg, &option) && value_of(arg).is_some();
    let variable = variables(command, &of_it).into_iter().next()?;
    let alone = without(command.clone(), &of_it).try_get_matches_from(args);
    if alone.is_err_and(|other| option_of(&other).as_deref() == Some(&option)) {
        return None;
    }
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let words: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with("For more")).collect();
    let reason = words.join(" ");
    Some(CliError::Usage {
        message: format!("environment variable {variable}: {}", reason.trim_start_matches("error: ")),
        hint: format!("correct {variable}, or unset it"),
    })
}

/// Returns true if an error is about this option: clap writes its name, and that of its value.
fn is_named(arg: &Arg, option: &str) -> bool {
    let after = |long| option.strip_prefix("--")?.strip_prefix(long);
    let ends = |rest: &str| !rest.starts_with(|c: char| c == '-' || c.is_alphanumeric());
    arg.get_long().and_then(after).is_some_and(ends)
}

/// The option that an error is about, as clap writes it.
fn option_of(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(option) => Some(option.clone()),
        _ => None,
    }
}

/// The variables of options that `is` names, in the command and below it.
fn variables(command: &Command, is: &dyn Fn(&Arg) -> bool) -> Vec<String> {
    let of = |arg: &Arg| Some(arg.get_env()?.to_string_lossy().into_owned());
    let mut names: Vec<String> = command.get_arguments().filter(|arg| is(arg)).filter_map(of).collect();
    names.extend(command.get_subcommands().flat_map(|sub| variables(sub, is)));
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn options_are_found_by_the_names_in_errors() {
        let cli = Cli::command();
        let find = |option: &str| variables(&cli, &|arg| is_named(arg, option)).into_iter().next();
        assert_eq!(find("--ctx <TOKENS>").as_deref(), Some("TERRACE_CTX"));
        assert_eq!(find("--mmap[=<WHEN>]").as_deref(), Some("TERRACE_MMAP"));
        assert_eq!(find("--ct <TOKENS>"), None);
        assert_eq!(find("[MODEL]"), None);
    }
}
