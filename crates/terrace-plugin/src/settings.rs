//! What the user set, in variables of the names that Terrace's own options have.

use std::fmt::Display;
use std::str::FromStr;
use terrace_plan::{Budget, Manage};
use terrace_store::{DirectChoice, IoChoice, PolicyKind};

/// The settings.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `TERRACE_RAM_BUDGET`: RAM for the weights of all models together.
    pub budget: Budget,
    /// `TERRACE_STREAM`: which weights may be streamed.
    pub stream: Manage,
    /// `TERRACE_DIRECT`: whether reads bypass the page cache.
    pub direct: DirectChoice,
    /// `TERRACE_IO`: which engine reads.
    pub io: IoChoice,
    /// `TERRACE_CACHE_POLICY`: the order of eviction.
    pub policy: PolicyKind,
}

impl Settings {
    /// Takes the settings from variables, of which `get` has the values.
    ///
    /// # Errors
    /// A line that names the variable, if its value means nothing.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        Ok(Self {
            budget: setting(&get, "TERRACE_RAM_BUDGET")?,
            stream: setting(&get, "TERRACE_STREAM")?,
            direct: setting(&get, "TERRACE_DIRECT")?,
            io: setting(&get, "TERRACE_IO")?,
            policy: setting(&get, "TERRACE_CACHE_POLICY")?,
        })
    }
}

fn setting<T: FromStr<Err: Display> + Default>(
    get: &impl Fn(&str) -> Option<String>,
    name: &str,
) -> Result<T, String> {
    match get(name) {
        None => Ok(T::default()),
        Some(value) => value.parse().map_err(|error| format!("{name}={value}: {error}")),
    }
}
