//! The device that a file is on.

use crate::sys;
use std::io;
use std::path::Path;

/// A device, as the system numbers and names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Major number; 0 where the system has none.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Type of the file system, such as `ext4`; empty if unknown.
    pub file_system: String,
    /// The mounted device, such as `/dev/nvme0n1p2`; empty if unknown.
    pub source: String,
}

/// Returns the device that `path` is on.
///
/// # Errors
/// If the metadata of `path` cannot be read.
pub fn device_of(path: &Path) -> io::Result<Device> {
    sys::disk::device_of(path)
}

/// Returns the number of the disk that `path` is on: partitions of one disk have the same.
///
/// # Errors
/// If the metadata of `path` cannot be read.
pub fn disk_of(path: &Path) -> io::Result<u64> {
    sys::disk::disk_of(path)
}
