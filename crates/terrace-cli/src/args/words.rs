//! The engine's options of this process as words of a command line, for child processes.

use super::EngineArgs;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, Command};
use std::ffi::{OsStr, OsString};

/// The [`EngineArgs`] that the command line and the environment set, read back from clap, so that
/// there is no list of names to keep complete. Another process finds defaults and the configuration
/// file by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words(Vec<(String, Option<OsString>)>);

impl Words {
    /// Collects the words from the matches of a command with these options.
    pub fn of(matches: &ArgMatches) -> Self {
        Self::of_options(matches, &EngineArgs::augment_args(Command::new("engine")), &[])
    }

    /// Collects the words of all options of `command` but some.
    pub fn of_options(matches: &ArgMatches, command: &Command, but: &[&str]) -> Self {
        let mut words = Vec::new();
        for option in command.get_arguments() {
            let (id, Some(name)) = (option.get_id().as_str(), option.get_long()) else { continue };
            if but.contains(&name) {
                continue;
            }
            let source = matches.value_source(id);
            if !matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable)) {
                continue;
            }
            if matches!(option.get_action(), ArgAction::SetTrue) {
                words.extend(matches.get_flag(id).then(|| (name.to_owned(), None)));
                continue;
            }
            let values = matches.get_raw(id).into_iter().flatten();
            words.extend(values.map(|value| (name.to_owned(), Some(value.to_owned()))));
        }
        // The configuration file, which sets the rest.
        if let Ok(Some(mut file)) = matches.try_get_raw("config")
            && matches.value_source("config") == Some(ValueSource::CommandLine)
        {
            words.extend(file.next().map(|file| ("config".to_owned(), Some(file.to_owned()))));
        }
        Self(words)
    }

    /// Sets an option, in place of any earlier value.
    pub fn set(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.forget(name);
        self.0.push((name.to_owned(), Some(value.as_ref().to_owned())));
    }

    /// Sets a switch.
    pub fn set_switch(&mut self, name: &str) {
        self.forget(name);
        self.0.push((name.to_owned(), None));
    }

    /// Removes an option.
    pub fn forget(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// The options that were given, by their names without dashes, with their values.
    pub fn given(&self) -> impl Iterator<Item = (&str, Option<&OsStr>)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_deref()))
    }

    /// The words as arguments of a program.
    pub fn arguments(&self) -> impl Iterator<Item = OsString> {
        self.0.iter().map(|(name, value)| {
            let mut word = OsString::from(format!("--{name}"));
            if let Some(value) = value {
                word.push("=");
                word.push(value);
            }
            word
        })
    }
}
