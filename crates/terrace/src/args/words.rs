//! What this process was told, in words for another one.

use super::EngineArgs;
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, Command};
use std::ffi::{OsStr, OsString};

/// What the command line and the environment say of [`EngineArgs`], read back from clap: a list of names that could lack one
/// does not exist. Defaults, and what is in the configuration file, another process knows by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words(Vec<(String, Option<OsString>)>);

impl Words {
    /// Of a command that has these options.
    pub fn of(matches: &ArgMatches) -> Self {
        let mut words = Vec::new();
        for option in EngineArgs::augment_args(Command::new("engine")).get_arguments() {
            let (id, Some(name)) = (option.get_id().as_str(), option.get_long()) else { continue };
            let told = matches.value_source(id);
            if !matches!(told, Some(ValueSource::CommandLine | ValueSource::EnvVariable)) {
                continue;
            }
            if matches!(option.get_action(), ArgAction::SetTrue) {
                words.extend(matches.get_flag(id).then(|| (name.to_owned(), None)));
                continue;
            }
            let values = matches.get_raw(id).into_iter().flatten();
            words.extend(values.map(|value| (name.to_owned(), Some(value.to_owned()))));
        }
        // The file that says the rest.
        if let Ok(Some(mut file)) = matches.try_get_raw("config")
            && matches.value_source("config") == Some(ValueSource::CommandLine)
        {
            words.extend(file.next().map(|file| ("config".to_owned(), Some(file.to_owned()))));
        }
        Self(words)
    }

    /// Says this of an option, whatever was said of it.
    pub fn set(&mut self, name: &str, value: impl AsRef<OsStr>) {
        self.forget(name);
        self.0.push((name.to_owned(), Some(value.as_ref().to_owned())));
    }

    /// Says nothing of an option.
    pub fn forget(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// As arguments of a program.
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
