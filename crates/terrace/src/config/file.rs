//! The configuration file: values of options, parsed in the same way as on the command line.

use super::aliases::renamed;
use super::names::one_line;
use crate::cli::Cli;
use crate::error::CliError;
use crate::user_dirs::user_dirs;
use clap::{Arg, ArgAction, Command, CommandFactory};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use terrace_server::nearest;

/// The subcommands whose options the file can set.
pub const CONFIGURABLE: [&str; 8] =
    ["run", "serve", "bench", "optimize", "perplexity", "calibrate-skip", "plan", "llama"];

/// Reads the file and returns its path and text. A file named by the user must exist; the default
/// one need not.
///
/// # Errors
/// The file cannot be read.
pub fn read_file(named: Option<&Path>) -> Result<Option<(PathBuf, String)>, CliError> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => match default_path() {
            Some(path) => path,
            None => return Ok(None),
        },
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some((path, text))),
        Err(e) if named.is_none() && e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(CliError::Usage {
            message: format!("configuration file {}: {e}", path.display()),
            hint: "the file must be TOML in UTF-8, with lines such as `ram-budget = \"8GiB\"`".into(),
        }),
    }
}

fn default_path() -> Option<PathBuf> {
    Some(user_dirs().config?.join("config.toml"))
}

/// Names of the options that the file can set, each with a subcommand that has it.
fn known_keys() -> BTreeMap<String, &'static str> {
    let command = Cli::command();
    let mut keys = BTreeMap::new();
    for name in CONFIGURABLE {
        let sub = command.find_subcommand(name).expect("a subcommand of ours");
        for arg in sub.get_arguments().filter(|a| a.get_env().is_some() && !a.is_global_set()) {
            keys.entry(arg.get_id().as_str().replace('_', "-")).or_insert(name);
        }
    }
    keys
}

/// The values of the file as words of a command line, and warnings.
///
/// # Errors
/// The file is not TOML, or a value is not valid for its option.
pub fn values_of(path: &Path, text: &str) -> Result<(BTreeMap<String, String>, Vec<String>), CliError> {
    let usage = |message: String, hint: String| CliError::Usage {
        message: format!("configuration file {}: {message}", path.display()),
        hint,
    };
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
        let line = e.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        usage(format!("line {line}: {}", one_line(e.message())), "write lines such as `ctx = 4096`".into())
    })?;
    let known = known_keys();
    let (mut values, mut warnings) = (BTreeMap::new(), Vec::new());
    for (key, value) in &table {
        let name = key.replace('_', "-");
        let name = renamed(&name).map_or(name, str::to_owned);
        let Some(subcommand) = known.get(&name) else {
            let near = nearest(&name, known.keys().map(String::as_str));
            warnings.push(format!("{}: unknown key `{key}`{near}", path.display()));
            continue;
        };
        let word = match value {
            toml::Value::String(s) => s.clone(),
            toml::Value::Integer(_) | toml::Value::Float(_) => value.to_string(),
            toml::Value::Boolean(on) if is_switch(&option(subcommand, &name)) => on.to_string(),
            other => {
                let message = format!("key `{key}`: {} is neither a string nor a number", other.type_str());
                return Err(usage(message, format!("write `{key} = \"...\"`")));
            }
        };
        check(subcommand, &name, &word)
            .map_err(|reason| usage(format!("key `{key}`: {reason}"), see(subcommand)))?;
        values.insert(name.replace('-', "_"), word);
    }
    Ok((values, warnings))
}

fn see(subcommand: &str) -> String {
    format!("`terrace {subcommand} --help` describes the option's values")
}

/// Parses one value as its option would.
///
/// # Errors
/// Why the value is not valid.
pub fn check(subcommand: &str, key: &str, word: &str) -> Result<(), String> {
    let arg = option(subcommand, key);
    if is_switch(&arg) {
        return match word {
            "true" | "false" => Ok(()),
            other => Err(format!("`{other}` is neither true nor false")),
        };
    }
    // In a command with this option only, so that no other option or variable can fail.
    let arg = arg.env(None::<&str>).required(false);
    let words = if arg.is_positional() {
        vec!["terrace".to_owned(), "--".into(), word.into()]
    } else {
        vec!["terrace".to_owned(), format!("--{key}={word}")]
    };
    Command::new("terrace").arg(arg).try_get_matches_from(words).map(|_| ()).map_err(|e| {
        let text = e.to_string();
        let line = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        one_line(line)
    })
}

/// The option of a subcommand that a key of the file sets.
fn option(subcommand: &str, key: &str) -> Arg {
    let command = Cli::command();
    let sub = command.find_subcommand(subcommand).expect("a subcommand of ours");
    let id = key.replace('-', "_");
    sub.get_arguments().find(|a| a.get_id() == id.as_str()).expect("a known key").clone()
}

/// Whether the option is a switch, which takes no value on the command line.
fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plug-in reads the same file, and knows the keys by this list.
    #[test]
    fn the_list_of_keys_is_complete() {
        use terrace_model::configuration::{KEYS, RENAMED};
        assert_eq!(known_keys().into_keys().collect::<Vec<_>>(), KEYS);
        for (old, new) in RENAMED {
            assert_eq!(renamed(old), Some(*new));
        }
        let old = crate::config::aliases::renamed_variables();
        assert_eq!(old.count(), RENAMED.len());
    }

    #[test]
    fn unknown_names_come_with_the_nearest() {
        let (_, warnings) = values_of(Path::new("c.toml"), "ram-buget = \"2GiB\"\nqwertz = 1").unwrap();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(
            warnings.iter().any(|w| w.contains("`ram-buget`; did you mean `ram-budget`")),
            "{warnings:?}"
        );
        assert!(warnings.iter().any(|w| w.ends_with("unknown key `qwertz`")), "{warnings:?}");
    }

    #[test]
    fn bad_values_name_file_key_and_reason() {
        for (text, part) in [
            ("ctx = 0", "key `ctx`"),
            ("ram-budget = \"lots\"", "lots"),
            ("temp = true", "neither a string nor a number"),
            ("watch = \"perhaps\"", "`perhaps` is neither true nor false"),
            ("ctx = [", "line 1"),
            ("a = 1\nb ==", "line 2"),
        ] {
            let message = values_of(Path::new("c.toml"), text).unwrap_err().to_string();
            assert!(message.contains("c.toml") && message.contains(part), "{text}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
