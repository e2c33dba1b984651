//! The directories for files that a user's runs keep.

use crate::kept::DeviceSettings;
use std::ffi::OsString;
use std::path::PathBuf;

/// The directories for files that a user's runs keep, as given by the program that the user
/// started. By default there are none, and nothing is read or written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserDirs {
    /// Directory of settings. `None` means that there are none.
    pub config: Option<PathBuf>,
    /// Directory of files that can be deleted at any time. `None` means that nothing is kept.
    pub cache: Option<PathBuf>,
}

impl UserDirs {
    /// Returns the directory of settings: `$XDG_CONFIG_HOME/terrace`, by default in the home directory.
    /// `variable` has the environment's values.
    pub fn config_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let config = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
        config.map(|dir| dir.join("terrace"))
    }

    /// Returns the directory of files that can be deleted at any time: `$XDG_CACHE_HOME/terrace`, by
    /// default in the home directory. `variable` has the environment's values.
    pub fn cache_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        // What is not absolute means nothing, by the standard.
        let set = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        cache.map(|dir| dir.join("terrace"))
    }

    /// Returns where measured settings of block devices are kept: `io.json` in the cache directory.
    pub fn device_settings(&self) -> DeviceSettings {
        self.cache.as_ref().map_or(DeviceSettings::Off, |dir| DeviceSettings::At(dir.join("io.json")))
    }

    /// Returns where checksums of models are kept: the folder `checksums` in the cache directory.
    pub fn checksums(&self) -> Option<PathBuf> {
        self.cache.as_ref().map(|dir| dir.join("checksums"))
    }
}
