//! Options that may be meant by one that no command has.

use super::aliases::{Means, aliases};
use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use terrace_server::most_similar;

/// Least similarity of two names.
const SIMILAR: f64 = 0.8;

/// Turns clap's error about an unknown option into one line, with the option that is meant.
pub fn unknown_option(
    cli: &Command,
    error: &clap::Error,
    words: &[std::ffi::OsString],
) -> Option<(String, String)> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let ContextValue::String(given) = error.get(ContextKind::InvalidArg)? else { return None };
    let name = given.strip_prefix("--")?;
    let mut of_words = words.iter().skip(1).filter_map(|word| cli.find_subcommand(word));
    let command = of_words.next_back().unwrap_or(cli);
    let (ours, meant) = meant(command, name)?;
    let hint = match ours {
        true => format!("did you mean `--{meant}`?"),
        false => format!("did you mean llama.cpp's `--{meant}`? It is understood"),
    };
    Some((format!("unexpected option `{given}`"), hint))
}

/// The option that is meant by a name, and whether it is Terrace's own: the shortest that begins with it, else the
/// most similar one.
fn meant<'c>(command: &'c Command, name: &str) -> Option<(bool, &'c str)> {
    let ours = command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(|arg| arg.get_long());
    let understood = aliases().filter(|alias| !matches!(alias.means, Means::Refused(..)));
    let theirs = understood.flat_map(|alias| alias.names).filter_map(|name| name.strip_prefix("--"));
    let ours: Vec<&str> = ours.collect();
    let theirs: Vec<&str> = theirs.collect();
    let begins = |known: &&&str| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    let shortest = |names: &[&'c str]| names.iter().filter(begins).min_by_key(|known| known.len()).copied();
    if let Some(known) = shortest(&ours) {
        return Some((true, known));
    }
    if let Some(known) = shortest(&theirs) {
        return Some((false, known));
    }
    // Of equally similar ones, Terrace's own.
    let known = most_similar(name, theirs.iter().chain(&ours).copied(), SIMILAR)?;
    Some((ours.contains(&known), known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    #[test]
    fn short_and_misspelt_names_find_what_is_meant() {
        let cli = Cli::command();
        let run = cli.find_subcommand("run").unwrap();
        for (name, known) in [
            ("ram", (true, "ram-budget")),
            ("ram-buget", (true, "ram-budget")),
            ("ctx-sized", (false, "ctx-size")),
            ("kv", (true, "kv-type")),
            ("gpu", (false, "gpu-layers")),
            ("no-displayprompt", (false, "no-display-prompt")),
            ("thread", (true, "threads")),
        ] {
            assert_eq!(meant(run, name), Some(known), "{name}");
        }
        assert_eq!(meant(run, "qwertz"), None);
    }
}
