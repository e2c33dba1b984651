//! The files that this process has open, its own and those of the program that it is part of.

use super::file::{OPEN_FILES, id};
use super::files::by_number;
use crate::file::FileId;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Number of an open file of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Descriptor(RawFd);

/// Identity of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Which file it is.
    pub id: FileId,
    /// Its length in bytes.
    pub len: u64,
    /// When its bytes were written, in seconds since 1970.
    pub modified: i64,
}

impl Descriptor {
    /// Returns the number of an open file.
    pub fn of(file: &File) -> Self {
        Self(file.as_raw_fd())
    }

    /// Returns all that are open, in order.
    pub fn all() -> Vec<Self> {
        let Ok(entries) = fs::read_dir(OPEN_FILES) else { return Vec::new() };
        let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut all: Vec<Self> = numbers.map(Self).collect();
        all.sort();
        all
    }

    /// Returns which regular file it is of, if it is open.
    pub fn identity(self) -> Option<Identity> {
        // Through the link: the descriptor's own offset and owner are the program's.
        let meta = fs::metadata(self.path()).ok()?;
        let (len, modified) = (meta.len(), meta.mtime());
        meta.is_file().then(|| Identity { id: id(&meta), len, modified })
    }

    /// Returns a path by which the file can be opened again while it is open.
    pub fn path(self) -> PathBuf {
        by_number(self.0)
    }
}

/// Returns whether the number of an open file is at least `number`: files get the lowest free ones.
pub fn is_numbered_from(file: &impl AsRawFd, number: usize) -> bool {
    usize::try_from(file.as_raw_fd()).is_ok_and(|own| own >= number)
}
