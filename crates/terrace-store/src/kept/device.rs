//! The device that a file is on.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
        let dev = std::fs::metadata(path)?.dev();
        let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
        let (file_system, source) = mount(path, major, minor).unwrap_or_default();
        Ok(Self { major, minor, file_system, source })
    }
}

impl fmt::Display for BlockDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
        write!(f, "{} ({}, {}:{})", name(&self.source), name(&self.file_system), self.major, self.minor)
    }
}

/// Returns type and source of the mount that contains `path`: the last mount with the device's
/// number, or for file systems with their own numbers (btrfs) the innermost mount around the path.
fn mount(path: &Path, major: u32, minor: u32) -> Option<(String, String)> {
    let mounts = procfs::process::Process::myself().and_then(|process| process.mountinfo()).ok()?;
    let number = format!("{major}:{minor}");
    let by_number = mounts.iter().rev().find(|mount| mount.majmin == number);
    let found = by_number.or_else(|| {
        let path = path.canonicalize().ok()?;
        let around = mounts.iter().filter(|mount| path.starts_with(&mount.mount_point));
        around.max_by_key(|mount| mount.mount_point.components().count())
    })?;
    Some((found.fs_type.clone(), found.mount_source.clone().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_place_is_the_same_device_and_proc_is_another() {
        let dir = tempfile::TempDir::new().unwrap();
        let here = BlockDevice::of(dir.path()).unwrap();
        std::fs::write(dir.path().join("file"), "x").unwrap();
        assert_eq!(BlockDevice::of(&dir.path().join("file")).unwrap(), here);
        assert!(!here.file_system.is_empty(), "{here}");
        let proc = BlockDevice::of(Path::new("/proc/version")).unwrap();
        assert_eq!(proc.file_system, "proc");
        assert_ne!(proc, here);
        assert!(BlockDevice::of(&dir.path().join("none")).is_err());
    }
}
