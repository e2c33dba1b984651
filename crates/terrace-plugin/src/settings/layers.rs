//! Variables, and below them the configuration file.

use clap::Command;
use clap::error::{ContextKind, ContextValue};
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use terrace_model::configuration::{self, MODELS, RENAMED, is_key, keys, option_of, variable};
use terrace_store::UserDirs;

/// Keys about weights that have no effect here. Others that the plug-in does not have are of commands
/// of `terrace`, and may well be in a file that both read.
const WITHOUT_EFFECT: [&str; 14] = [
    "adapt",
    "auto-learn",
    "layer-skip",
    "learn-mode",
    "learn-to",
    "lossy",
    "mmap",
    "override-tensor",
    "plan",
    "slots-share",
    "verify",
    "vram-budget",
    "vram-reserve",
    "warmup-prompt",
];

/// A key that `terrace llama` has for itself.
const OF_LLAMA: &str = "plugin";

/// The layers that settings are taken from.
pub struct Layers<'a> {
    variable: &'a dyn Fn(&str) -> Option<OsString>,
    path: PathBuf,
    file: BTreeMap<String, String>,
}

impl<'a> Layers<'a> {
    /// Reads the file. Also returns a line for each key that nothing has.
    ///
    /// # Errors
    /// A line that names the file, if it cannot be read.
    pub fn read(variable: &'a dyn Fn(&str) -> Option<OsString>) -> Result<(Self, Vec<String>), String> {
        let (path, text) = file(variable)?;
        let (file, unknown) = values(&path, &text)?;
        Ok((Self { variable, path, file }, unknown))
    }

    /// The values of all options of `command` that have an effect here, as words of its command line:
    /// those of variables, or of the keys of the same names.
    ///
    /// # Errors
    /// A line that names the variable or the key, if its value means nothing.
    pub fn words(&self, command: &Command) -> Result<Vec<OsString>, String> {
        // Variables are read here, where those that are set to nothing count as unset.
        let command = command.clone().mut_args(|arg| arg.env(None::<&str>));
        let mut words = Vec::new();
        for key in heeded(&command) {
            let Some((source, value)) = self.value(key) else { continue };
            let mut word = OsString::from(format!("--{key}="));
            word.push(value);
            if let Err(error) = command.clone().try_get_matches_from([&word]) {
                return Err(format!("{source}: {}", reason(&error)));
            }
            words.push(word);
        }
        Ok(words)
    }

    /// The value of an option, and what it was set by.
    fn value(&self, key: &str) -> Option<(String, OsString)> {
        let old = RENAMED.iter().find(|(_, new)| *new == key).map(|(old, _)| *old);
        let set = |name: String| Some(((self.variable)(&name).filter(|value| !value.is_empty())?, name));
        let variable = [Some(key), old].into_iter().flatten().map(variable).find_map(set);
        let variable = variable.map(|(value, name)| (format!("{name}={}", value.to_string_lossy()), value));
        variable.or_else(|| {
            let value = self.file.get(key)?;
            Some((format!("{}: key `{key}`", at(&self.path)), value.into()))
        })
    }

    /// A line for the variables that are set and have no effect here, and one for such keys of the file.
    pub fn without_effect(&self, command: &Command) -> Vec<String> {
        let heeded: Vec<&str> = heeded(command).collect();
        let unused = |key: &&str| !heeded.contains(key) && *key != OF_LLAMA;
        let set = |name: &String| (self.variable)(name).is_some_and(|value| !value.is_empty());
        let old = RENAMED.iter().filter(|(_, new)| is_key(new) && unused(new)).map(|(old, _)| *old);
        let variables: Vec<String> = keys().filter(unused).chain(old).map(variable).filter(set).collect();
        let keys = WITHOUT_EFFECT.iter().filter(|key| unused(key) && self.file.contains_key(**key));
        let keys: Vec<String> = keys.map(|key| format!("`{key}`")).collect();
        let line = |of: &str, names: Vec<String>| match &names[..] {
            [] => None,
            [one] => Some(format!("{of}{one} has no effect in this program")),
            several => Some(format!("{of}{} have no effect in this program", several.join(", "))),
        };
        let of_file = format!("{}: ", at(&self.path));
        [line("", variables), line(&of_file, keys)].into_iter().flatten().collect()
    }
}

/// The keys of all options of a command that have an effect here.
fn heeded(command: &Command) -> impl Iterator<Item = &str> {
    let options = command.get_arguments().filter_map(|option| option.get_long());
    options.filter(|key| is_key(key) && !WITHOUT_EFFECT.contains(key))
}

/// Why a value means nothing, without the name of the option, which the user may not have written.
fn reason(error: &clap::Error) -> String {
    match (error.source(), error.get(ContextKind::ValidValue)) {
        (Some(source), _) => source.to_string(),
        (None, Some(ContextValue::Strings(values))) => format!("must be {}", values.join(" or ")),
        _ => error.to_string(),
    }
}

/// The configuration file with its text, which is empty if the user has none.
fn file(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<(PathBuf, String), String> {
    let named = variable("TERRACE_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
    let dirs = UserDirs { config: UserDirs::config_of(variable), cache: None };
    let read = dirs.configuration(named.as_deref());
    read.map(Option::unwrap_or_default).map_err(|(path, error)| format!("{}: {error}", at(&path)))
}

/// The values of the file by their keys, and a line for each key that nothing has.
fn values(path: &Path, text: &str) -> Result<(BTreeMap<String, String>, Vec<String>), String> {
    let at = at(path);
    let table = configuration::table(text).map_err(|reason| format!("{at}: {reason}"))?;
    let (mut values, mut unknown) = (BTreeMap::new(), Vec::new());
    // Sections about the models of a server have options of `terrace serve`.
    for (key, value) in table.into_iter().filter(|(key, _)| key != MODELS) {
        match option_of(&key) {
            name if is_key(&name) => drop(values.insert(name, word(value))),
            _ => unknown.push(format!("{at}: unknown key `{key}`")),
        }
    }
    Ok((values, unknown))
}

/// A value as a word of a command line; options that may be repeated have several.
fn word(value: toml::Value) -> String {
    match value {
        toml::Value::String(text) => text,
        toml::Value::Array(values) => values.into_iter().map(word).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// The place that messages name.
fn at(path: &Path) -> String {
    format!("configuration file {}", path.display())
}
