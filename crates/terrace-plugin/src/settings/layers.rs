//! Variables, and below them the configuration file.

use clap::Command;
use clap::error::{ContextKind, ContextValue};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use terrace_model::configuration::{MODELS, RENAMED, keys};
use terrace_platform::input_file::{self, MAX_SETTINGS};
use terrace_store::{UserDirs, is_absent};

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
    /// Keys that were asked for.
    known: RefCell<BTreeSet<String>>,
}

impl<'a> Layers<'a> {
    /// Reads the file. Also returns a line for each key that nothing has.
    ///
    /// # Errors
    /// A line that names the file, if it cannot be read.
    pub fn read(variable: &'a dyn Fn(&str) -> Option<OsString>) -> Result<(Self, Vec<String>), String> {
        let (path, text) = configuration(variable)?;
        let (file, unknown) = values(&path, &text)?;
        Ok((Self { variable, path, file, known: RefCell::default() }, unknown))
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
        let options = command.get_arguments().filter_map(|option| option.get_long());
        for key in options.filter(|key| is_key(key) && !WITHOUT_EFFECT.contains(key)) {
            self.known.borrow_mut().insert(key.to_owned());
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
        let variable = [Some(key), old].into_iter().flatten().map(variable_of).find_map(set);
        let variable = variable.map(|(value, name)| (format!("{name}={}", value.to_string_lossy()), value));
        variable.or_else(|| {
            let at = format!("configuration file {}: key `{key}`", self.path.display());
            Some((at, self.file.get(key)?.into()))
        })
    }

    /// A line for the variables that were set and not asked for, and one for such keys of the file.
    pub fn without_effect(&self) -> Vec<String> {
        let known = self.known.borrow();
        let unused = |key: &&str| !known.contains(*key) && *key != OF_LLAMA;
        let set = |name: &String| (self.variable)(name).is_some_and(|value| !value.is_empty());
        let old = RENAMED.iter().filter(|(_, new)| is_key(new) && unused(new)).map(|(old, _)| *old);
        let variables = keys().filter(unused).chain(old).map(variable_of).filter(set);
        let variables: Vec<String> = variables.collect();
        let keys = WITHOUT_EFFECT.iter().filter(|key| unused(key) && self.file.contains_key(**key));
        let keys: Vec<String> = keys.map(|key| format!("`{key}`")).collect();
        let of_file = format!("configuration file {}: ", self.path.display());
        let line = |of: &str, names: &[String]| {
            let one_or_more = if names.len() == 1 { "has" } else { "have" };
            (!names.is_empty())
                .then(|| format!("{of}{} {one_or_more} no effect in this program", names.join(", ")))
        };
        [line("", &variables), line(&of_file, &keys)].into_iter().flatten().collect()
    }
}

fn variable_of(key: &str) -> String {
    format!("TERRACE_{}", key.replace('-', "_").to_uppercase())
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
fn configuration(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<(PathBuf, String), String> {
    let named = variable("TERRACE_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
    let by_default = || Some(UserDirs::config_of(variable)?.join("config.toml"));
    let must_exist = named.is_some();
    let Some(path) = named.or_else(by_default) else { return Ok(Default::default()) };
    if !must_exist && is_absent(&path) {
        return Ok((path, String::new()));
    }
    match input_file::read_text(&path, MAX_SETTINGS) {
        Ok(text) => Ok((path, text)),
        Err(error) => Err(format!("configuration file {}: {error}", path.display())),
    }
}

/// The values of the file by their keys, and a line for each key that nothing has.
fn values(path: &Path, text: &str) -> Result<(BTreeMap<String, String>, Vec<String>), String> {
    let at = format!("configuration file {}", path.display());
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let line =
            error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
        format!("{at}: line {line}: {}", error.message().lines().next().unwrap_or_default())
    })?;
    let (mut values, mut unknown) = (BTreeMap::new(), Vec::new());
    // Sections about the models of a server have options of `terrace serve`.
    for (key, value) in table.into_iter().filter(|(key, _)| key != MODELS) {
        let name = key.replace('_', "-");
        let renamed = RENAMED.iter().find(|(old, _)| *old == name);
        let name = renamed.map_or(name, |(_, new)| (*new).to_owned());
        if !is_key(&name) {
            unknown.push(format!("{at}: unknown key `{key}`"));
            continue;
        }
        let word = match value {
            toml::Value::String(text) => text,
            // Options that may be repeated.
            toml::Value::Array(words) => {
                let words =
                    words.iter().map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned));
                words.collect::<Vec<_>>().join(",")
            }
            other => other.to_string(),
        };
        values.insert(name, word);
    }
    Ok((values, unknown))
}
/// Returns true if the configuration file has this key.
fn is_key(name: &str) -> bool {
    keys().any(|key| key == name)
}
