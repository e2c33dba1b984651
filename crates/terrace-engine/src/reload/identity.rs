//! Which file it is, and in what state.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use terrace_model::ModelFile;

/// A file at a time: equal states mean that it was neither replaced nor written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Which file of the system's.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// When it was last written to, in nanoseconds.
    pub modified: i128,
}

impl FileState {
    /// Of what is at the path now.
    pub fn of(path: &Path) -> io::Result<Self> {
        std::fs::metadata(path).map(|meta| Self::from(&meta))
    }

    /// Whether it is the same file as `other`, in whatever state.
    pub fn same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

impl From<&Metadata> for FileState {
    fn from(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
        }
    }
}

/// The states of a model's files, in the order of its shards; none where one cannot be looked at.
pub fn states(model: &ModelFile) -> Vec<Option<FileState>> {
    model.shards.iter().map(|shard| FileState::of(&shard.path).ok()).collect()
}
