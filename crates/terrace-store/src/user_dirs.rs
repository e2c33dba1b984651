//! Where a user's runs keep files.

use crate::kept::DeviceSettings;
use std::path::PathBuf;

/// Where a user's runs keep files, as the program that the user started says. By default nowhere: what is kept is
/// neither read nor written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserDirs {
    /// Settings. `None` means that there are none.
    pub config: Option<PathBuf>,
    /// What may be deleted at any time. `None` means that nothing is kept.
    pub cache: Option<PathBuf>,
}

impl UserDirs {
    /// Where settings of devices are kept: `io.json` in the cache directory.
    pub fn device_settings(&self) -> DeviceSettings {
        self.cache.as_ref().map_or(DeviceSettings::Off, |dir| DeviceSettings::At(dir.join("io.json")))
    }
}
