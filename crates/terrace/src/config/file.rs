//! The configuration file: values of options, parsed in the same way as on the command line.

use super::names::one_line;
use crate::cli::Cli;
use crate::commands::serve::{OF_CLIENTS, Section, Sections};
use clap::{Arg, ArgAction, Command, CommandFactory};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use terrace_cli::error::CliError;
use terrace_cli::user_dirs::user_dirs;
use terrace_model::configuration::{self, MODELS, option_of};
use terrace_server::nearest;

/// The subcommands whose options the file can set.
pub const CONFIGURABLE: [&str; 9] =
    ["run", "serve", "batch", "bench", "optimize", "perplexity", "calibrate", "plan", "llama"];

/// Reads the file and returns its path and text. A file named by the user must exist; the default
/// one need not.
///
/// # Errors
/// The file cannot be read.
pub fn read_file(named: Option<&Path>) -> Result<Option<(PathBuf, String)>, CliError> {
    user_dirs().configuration(named).map_err(|(path, error)| CliError::Usage {
        message: format!("configuration file {}: {error}", path.display()),
        hint: match (error.kind(), named) {
            (ErrorKind::InvalidData, _) => {
                "the file must be TOML in UTF-8, with lines such as `ram-budget = \"8GiB\"`"
            }
            (_, Some(_)) => "give a file that can be read with --config or TERRACE_CONFIG",
            (_, None) => "make the file readable, or name another one with --config",
        }
        .into(),
    })
}

/// Names of the options that the file can set, each with a subcommand that has it.
pub fn known_keys() -> BTreeMap<String, &'static str> {
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
    let table = configuration::table(text)
        .map_err(|reason| usage(reason, "write lines such as `ctx = 4096`".into()))?;
    let known = known_keys();
    let (mut values, mut warnings) = (BTreeMap::new(), Vec::new());
    for (key, value) in table.iter().filter(|(key, _)| *key != MODELS) {
        let name = option_of(key);
        let Some(subcommand) = known.get(&name) else {
            let near = nearest(&name, known.keys().map(String::as_str));
            warnings.push(format!("{}: unknown key `{key}`{near}", path.display()));
            continue;
        };
        let word = word(subcommand, &name, value)
            .map_err(|reason| usage(format!("key `{key}`: {reason}"), format!("write `{key} = \"...\"`")))?;
        check(subcommand, &name, &word)
            .map_err(|reason| usage(format!("key `{key}`: {reason}"), see(subcommand, &reason)))?;
        values.insert(name.replace('-', "_"), word);
    }
    Ok((values, warnings))
}

/// The value of an option as a word of a command line.
///
/// # Errors
/// It cannot be one.
fn word(subcommand: &str, name: &str, value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(s) => Ok(s.clone()),
        toml::Value::Integer(_) | toml::Value::Float(_) => Ok(value.to_string()),
        toml::Value::Boolean(on) if is_switch(&option(subcommand, name)) => Ok(on.to_string()),
        toml::Value::Boolean(on) if has_default_value(&option(subcommand, name)) => {
            Ok(if *on { "on" } else { "off" }.into())
        }
        // An option that may be repeated.
        toml::Value::Array(values) => match delimiter(&option(subcommand, name)) {
            Some(between) => {
                let words = values.iter().map(|value| match value {
                    toml::Value::Array(_) => Err("has a list in its list".into()),
                    one => word(subcommand, name, one),
                });
                Ok(words.collect::<Result<Vec<_>, _>>()?.join(&between.to_string()))
            }
            None => Err("has one value, not several".into()),
        },
        other => Err(format!("{} is neither a string nor a number", other.type_str())),
    }
}

/// The sections of the file about models of a server: `[models.NAME]`, with `model` and options of `serve`
/// that concern a model.
///
/// # Errors
/// A section has something else.
pub fn sections_of(path: &Path, text: &str) -> Result<Sections, CliError> {
    let usage = |message: String| CliError::Usage {
        message: format!("configuration file {}: {message}", path.display()),
        hint: "write sections like [models.NAME] with `model = \"FILE\"` and options of `terrace serve`"
            .into(),
    };
    let table = configuration::table(text).unwrap_or_default();
    let Some(models) = table.get(MODELS) else { return Ok(Sections::new()) };
    let models = models.as_table().ok_or_else(|| usage(format!("`{MODELS}` is not a table")))?;
    let command = Cli::command();
    let serve = command.find_subcommand("serve").expect("a subcommand of ours");
    let known = |name: &str| {
        let of_model = !OF_CLIENTS.contains(&name);
        of_model && serve.get_arguments().any(|arg| arg.get_long() == Some(name) && arg.get_env().is_some())
    };
    let mut sections = Sections::new();
    for (model, values) in models {
        let wrong = |reason: String| usage(format!("[{MODELS}.{model}]: {reason}"));
        let values = values.as_table().ok_or_else(|| wrong("not a table".into()))?;
        let mut section = Section::default();
        for (key, value) in values {
            let name = key.replace('_', "-");
            if name == "model" {
                let file = value.as_str().ok_or_else(|| wrong("`model` is not a string".into()))?;
                section.model = Some(file.to_owned());
                continue;
            }
            if !known(&name) {
                return Err(wrong(format!("`{key}` is not an option of a model")));
            }
            let word = word("serve", &name, value).map_err(|reason| wrong(format!("`{key}`: {reason}")))?;
            check("serve", &name, &word).map_err(|reason| wrong(format!("`{key}`: {reason}")))?;
            section.options.insert(name, word);
        }
        sections.insert(model.clone(), section);
    }
    Ok(sections)
}

/// The hint about a wrong value, unless the reason lists those that there are.
fn see(subcommand: &str, reason: &str) -> String {
    match reason.contains("[possible values: ") {
        true => String::new(),
        false => format!("`terrace {subcommand} --help` describes the option's values"),
    }
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
        // `n` has no longer name.
        let dashes = if arg.get_long().is_none() { "-" } else { "--" };
        vec!["terrace".to_owned(), format!("{dashes}{key}={word}")]
    };
    Command::new("terrace").arg(arg).try_get_matches_from(words).map(|_| ()).map_err(|e| {
        let text = e.to_string();
        // Possible values are listed below the first line, and tips after them.
        let lines = text.lines().take_while(|line| !line.contains("tip: ") && !line.starts_with("For more"));
        one_line(lines.collect::<Vec<_>>().join(" ").trim_start_matches("error: "))
    })
}

/// The option of a subcommand that a key of the file sets.
fn option(subcommand: &str, key: &str) -> Arg {
    let command = Cli::command();
    let sub = command.find_subcommand(subcommand).expect("a subcommand of ours");
    let id = key.replace('-', "_");
    sub.get_arguments().find(|a| a.get_id() == id.as_str()).expect("a known key").clone()
}

/// The character between the values of an option that takes several.
fn delimiter(arg: &Arg) -> Option<char> {
    let several = matches!(arg.get_action(), ArgAction::Append).then_some(',');
    arg.get_value_delimiter().or(several)
}

/// Returns true if the option is a switch, which takes no value on the command line.
fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

/// Returns true if the option may have a value on the command line, which is `on` without one.
fn has_default_value(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|values| values.takes_values() && values.min_values() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The plug-in reads the same file, and knows the keys by this list.
    #[test]
    fn the_list_of_keys_is_complete() {
        use super::super::aliases::renamed;
        use terrace_model::configuration::{RENAMED, keys};
        let stale = "crates/terrace-model/src/keys.txt is stale: run `cargo xtask docs`";
        assert_eq!(known_keys().into_keys().collect::<Vec<_>>(), keys().collect::<Vec<_>>(), "{stale}");
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
    fn sections_are_about_models() {
        let path = Path::new("c.toml");
        let text = "ctx = 64\n[models.a]\nmodel = \"x.gguf\"\nctx = 128\nbatch_slots = true\n[models.b]\n";
        let (values, warnings) = values_of(path, text).unwrap();
        assert_eq!((values.len(), warnings.len()), (1, 0), "{warnings:?}");
        let sections = sections_of(path, text).unwrap();
        let options = [("batch-slots", "on"), ("ctx", "128")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        let a = Section { model: Some("x.gguf".into()), options: options.into() };
        assert_eq!(sections, Sections::from([("a".into(), a), ("b".into(), Section::default())]));
        for (text, part) in [
            ("[models.a]\nport = 1", "[models.a]: `port` is not an option of a model"),
            ("[models.a]\nctx = -1", "[models.a]: `ctx`"),
            ("[models.a]\nmodel = 1", "`model` is not a string"),
            ("models = 1", "`models` is not a table"),
            ("[models]\na = 1", "[models.a]: not a table"),
        ] {
            let message = sections_of(path, text).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn bad_values_name_file_key_and_reason() {
        for (text, part) in [
            ("ctx = -1", "key `ctx`"),
            ("ram-budget = \"lots\"", "lots"),
            ("temp = true", "neither a string nor a number"),
            ("temp = [1, 2]", "key `temp`: has one value, not several"),
            ("hot-cache = [[1]]", "key `hot-cache`: has a list in its list"),
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
