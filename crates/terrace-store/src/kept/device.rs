//! The device that a file is on.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::Path;
use terrace_platform::disk::device_of;

pub use terrace_platform::disk::disk_of;

/// A device for which settings are kept. Its number alone may mean another device after the next
/// boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDevice {
    /// Major number, as from `stat`.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Type of the file system, such as `ext4`; empty if unknown.
    pub file_system: String,
    /// The mounted device, such as `/dev/nvme0n1p2`; empty if unknown.
    pub source: String,
}

impl BlockDevice {
    /// Finds the device that `path` is on.
    ///
    /// # Errors
    /// If the metadata of `path` cannot be read.
    pub fn of(path: &Path) -> io::Result<Self> {
        let found = device_of(path)?;
        Ok(Self {
            major: found.major,
            minor: found.minor,
            file_system: found.file_system,
            source: found.source,
        })
    }
}

impl fmt::Display for BlockDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
        write!(f, "{} ({}, {}:{})", name(&self.source), name(&self.file_system), self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(feature = "portable", ignore = "plain std names no devices")]
    fn the_same_place_is_the_same_device_and_proc_is_another() {
        let dir = tempfile::TempDir::new().unwrap();
        let here = BlockDevice::of(dir.path()).unwrap();
        std::fs::write(dir.path().join("file"), "x").unwrap();
        assert_eq!(BlockDevice::of(&dir.path().join("file")).unwrap(), here);
        assert!(!here.file_system.is_empty(), "{here}");
        if cfg!(target_os = "linux") {
            let proc = BlockDevice::of(Path::new("/proc/version")).unwrap();
            assert_eq!(proc.file_system, "proc");
            assert_ne!(proc, here);
        }
        assert!(BlockDevice::of(&dir.path().join("none")).is_err());
    }
}
