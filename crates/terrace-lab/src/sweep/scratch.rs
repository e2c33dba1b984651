//! A folder for donors, beside the journal.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use tempfile::TempDir;
use terrace_cli::error::CliError;
use terrace_platform::file::open_no_link;
use terrace_platform::lock;
use terrace_store::part_file::folder;

/// The beginning of the folder's name.
const PREFIX: &str = ".terrace-sweep-";
/// Name of the file in it that is locked.
const LOCK: &str = "lock";

/// A folder that is deleted when the sweep ends, or, if the process is killed, when the next sweep
/// beside it begins.
pub struct Scratch {
    /// Locked until the process ends, however it ends. Closed before its folder is deleted.
    _lock: File,
    dir: TempDir,
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
            let file = match open_lock(&dir.path().join(LOCK), true) {
                // Another process took the folder for a leftover before it was locked.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            lock::lock(&file)?;
            if dir.path().join(LOCK).exists() {
                return Ok(Self { _lock: file, dir });
            }
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Opens the file of a folder that is locked, because not all systems lock folders.
fn open_lock(path: &Path, create: bool) -> io::Result<File> {
    open_no_link(OpenOptions::new().write(true).create(create), path)
}

/// Returns whether a process has locked this file. One that is not there was about to be made, or its process was killed.
fn is_held(path: &Path) -> bool {
    match open_lock(path, false) {
        Ok(file) => lock::try_lock(&file).is_err(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Removes folders that no process has locked. A failure is not an error: they only take space.
fn remove_leftovers(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if ours && entry.file_type().is_ok_and(|kind| kind.is_dir()) && !is_held(&entry.path().join(LOCK)) {
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
        #[cfg(unix)]
        std::os::unix::fs::symlink(&other, &link).unwrap();
        #[cfg(not(unix))]
        fs::write(&link, "").unwrap();
        let first = Scratch::beside(&out).unwrap();
        let second = Scratch::beside(&out).unwrap();
        assert!(!left.exists());
        assert!(first.path().exists() && second.path().exists());
        assert!(other.exists() && link.symlink_metadata().is_ok());
        drop((first, second));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
