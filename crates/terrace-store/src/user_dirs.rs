//! The directories for files that a user's runs keep.

use crate::cache_file::is_absent;
use crate::kept::DeviceSettings;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use terrace_platform::input_file::{self, MAX_SETTINGS};

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
    /// Returns the directory of settings: `$XDG_CONFIG_HOME/terrace`, by default in the home directory, or where the
    /// system has a folder for settings (`APPDATA`), there. `variable` has the environment's values.
    pub fn config_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let config = absolute(&variable, "XDG_CONFIG_HOME")
            .or_else(|| absolute(&variable, "HOME").map(|home| home.join(".config")))
            .or_else(|| absolute(&variable, "APPDATA"));
        config.map(|dir| dir.join("terrace"))
    }

    /// Returns the directory of files that can be deleted at any time: `$XDG_CACHE_HOME/terrace`, by
    /// default in the home directory, or where the system has a folder for such files (`LOCALAPPDATA`), there.
    /// `variable` has the environment's values.
    pub fn cache_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let cache = absolute(&variable, "XDG_CACHE_HOME")
            .or_else(|| absolute(&variable, "HOME").map(|home| home.join(".cache")))
            .or_else(|| absolute(&variable, "LOCALAPPDATA"));
        cache.map(|dir| dir.join("terrace"))
    }

    /// Reads the configuration file with this path, or, without one, `config.toml` in the directory of settings,
    /// which need not exist. Also returns its path.
    ///
    /// # Errors
    /// The file cannot be read: its path, and why.
    pub fn configuration(
        &self,
        named: Option<&Path>,
    ) -> Result<Option<(PathBuf, String)>, (PathBuf, io::Error)> {
        let by_default = || self.config.as_ref().map(|dir| dir.join("config.toml"));
        let Some(path) = named.map(Path::to_owned).or_else(by_default) else { return Ok(None) };
        if named.is_none() && is_absent(&path) {
            return Ok(None);
        }
        match input_file::read_text(&path, MAX_SETTINGS) {
            Ok(text) => Ok(Some((path, text))),
            Err(error) => Err((path, error)),
        }
    }

    /// Returns where measured settings of block devices are kept: `io.json` in the cache directory.
    pub fn device_settings(&self) -> DeviceSettings {
        self.cache.as_ref().map_or(DeviceSettings::Off, |dir| DeviceSettings::At(dir.join("io.json")))
    }

    /// Returns where what is remembered of models is kept: the folder `records` in the cache directory.
    pub fn records(&self) -> Option<PathBuf> {
        self.cache.as_ref().map(|dir| dir.join("records"))
    }

    /// Returns where checksums of models are kept: the folder `checksums` in the cache directory.
    pub fn checksums(&self) -> Option<PathBuf> {
        self.cache.as_ref().map(|dir| dir.join("checksums"))
    }
}

/// The path in a variable. Relative paths, and so empty ones, are invalid and ignored, by the XDG base
/// directory specification.
fn absolute(variable: impl Fn(&str) -> Option<OsString>, name: &str) -> Option<PathBuf> {
    variable(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(windows, ignore = "its paths are absolute elsewhere")]
    fn relative_directories_are_ignored() {
        let with = |set: &'static [(&str, &str)]| {
            move |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        };
        for (set, config, cache) in [
            (&[("HOME", "/h")][..], Some("/h/.config/terrace"), Some("/h/.cache/terrace")),
            (
                &[("HOME", "/h"), ("XDG_CONFIG_HOME", "c"), ("XDG_CACHE_HOME", "c")],
                Some("/h/.config/terrace"),
                Some("/h/.cache/terrace"),
            ),
            (
                &[("HOME", "/h"), ("XDG_CONFIG_HOME", ""), ("XDG_CACHE_HOME", "/c")],
                Some("/h/.config/terrace"),
                Some("/c/terrace"),
            ),
            (&[("HOME", "h")], None, None),
            (&[("HOME", "")], None, None),
            (&[], None, None),
        ] {
            assert_eq!(UserDirs::config_of(with(set)), config.map(PathBuf::from), "{set:?}");
            assert_eq!(UserDirs::cache_of(with(set)), cache.map(PathBuf::from), "{set:?}");
        }
    }
}
