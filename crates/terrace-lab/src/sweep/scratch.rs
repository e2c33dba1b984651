//! A folder for donors, beside the journal.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use tempfile::TempDir;
use terrace_cli::error::CliError;
use terrace_store::part_file::folder;

/// The beginning of the folder's name.
const PREFIX: &str = ".terrace-sweep-";

/// A folder that is deleted when the sweep ends, or, if the process is killed, when the next sweep
/// beside it begins.
pub struct Scratch {
    dir: TempDir,
    /// Locked until the process ends, however it ends.
    _lock: File,
}

impl Scratch {
    /// Makes a folder beside `out`, and removes those of killed processes.
    ///
    /// # Errors
    /// Errors of the system, with the folder.
    pub fn beside(out: &Path) -> Result<Self, CliError> {
        let folder = folder(out);
        remove_leftovers(folder);
        Self::make(folder).map_err(CliError::io(folder.display().to_string()))
    }

    fn make(folder: &Path) -> io::Result<Self> {
        loop {
            let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(folder)?;
            let lock = match open_folder(dir.path()) {
                // Another process took it for a leftover before it was locked.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                lock => lock?,
            };
            lock.lock()?;
            if dir.path().exists() {
                return Ok(Self { dir, _lock: lock });
            }
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

#[expect(clippy::disallowed_methods, reason = "a folder, to lock it")]
fn open_folder(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Removes folders that no process has locked. A failure is not an error: they only take space.
fn remove_leftovers(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if ours
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(open) = open_folder(&entry.path())
            && open.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_killed_sweeps_are_removed_and_those_in_use_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("s.jsonl");
        let left = dir.path().join(".terrace-sweep-left");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("copies.gguf"), "large").unwrap();
        let (other, link) = (dir.path().join("other"), dir.path().join(".terrace-sweep-link"));
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let first = Scratch::beside(&out).unwrap();
        let second = Scratch::beside(&out).unwrap();
        assert!(!left.exists());
        assert!(first.path().exists() && second.path().exists());
        assert!(other.exists() && link.symlink_metadata().is_ok());
        drop((first, second));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
