//! Looking up and keeping settings of devices.

use super::device::BlockDevice;
use super::file;
use super::settings::IoSettings;
use crate::file_kind::KeptFileError;
use std::path::{Path, PathBuf};

/// The file of measured device settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeviceSettings {
    /// Nowhere: nothing is looked up, measured or kept.
    #[default]
    Off,
    /// In a file.
    At(PathBuf),
}

impl DeviceSettings {
    /// Looks up the settings for the device of `path`. A file that cannot be used is ignored with a
    /// warning.
    pub fn lookup(&self, path: &Path) -> Option<IoSettings> {
        let (file, device) = self.place(path)?;
        file::load(&file, &device).unwrap_or_else(|error| {
            tracing::warn!("measured I/O settings ignored: {error}");
            None
        })
    }

    /// Returns when the settings for the device of `path` were measured, in seconds since 1970.
    pub fn measured_at(&self, path: &Path) -> Option<u64> {
        let (file, device) = self.place(path)?;
        file::measured_at(&file, &device)
    }

    /// Keeps settings for the device of `path`, and returns the file that they are in, if any.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep(&self, path: &Path, settings: &IoSettings) -> Result<Option<PathBuf>, KeptFileError> {
        let Some((file, device)) = self.place(path) else { return Ok(None) };
        file::store(&file, &device, settings)?;
        Ok(Some(file))
    }

    fn place(&self, path: &Path) -> Option<(PathBuf, BlockDevice)> {
        let Self::At(file) = self else { return None };
        match BlockDevice::of(path) {
            Ok(device) => Some((file.clone(), device)),
            Err(error) => {
                tracing::debug!("cannot tell which device {} is on: {error}", path.display());
                None
            }
        }
    }
}
