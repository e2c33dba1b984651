//! Files that are kept between runs and can be deleted at any time.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use terrace_platform::own_file::OwnFile;
use terrace_platform::{file, input_file, lock};

/// The ending of a file that is being written.
const SUFFIX: &str = ".part";

/// Reads the file's text, up to `most` bytes; `None` if the file does not exist.
///
/// # Errors
/// Errors of the system, and [`ErrorKind::InvalidData`] if the file is not text.
pub fn read_cache_file(path: &Path, most: u64) -> io::Result<Option<String>> {
    let text =
        |bytes| String::from_utf8(bytes).map_err(|error| io::Error::new(ErrorKind::InvalidData, error));
    read_cache_bytes(path, most)?.map(text).transpose()
}

/// Reads the file, up to `most` bytes; `None` if it does not exist.
///
/// # Errors
/// Errors of the system, and an error if it is not a regular file.
pub(crate) fn read_cache_bytes(path: &Path, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    match input_file::open(path) {
        Ok((file, _)) => file.take(most).read_to_end(&mut bytes).map(|_| Some(bytes)),
        Err(_) if is_absent(path) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether a user has no file at `path`: it does not exist, a component of the path is not a
/// folder, or a folder cannot be entered. Accounts of services have such home directories.
pub fn is_absent(path: &Path) -> bool {
    const ABSENT: [ErrorKind; 3] =
        [ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::PermissionDenied];
    path.metadata().is_err_and(|error| ABSENT.contains(&error.kind()))
}

/// Writes the file and its directories. Readers see the old file or the new one, never a part.
///
/// # Errors
/// Errors of the system.
pub fn replace_cache_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_cache_file_with(path, |file| file.write_all(bytes))
}

/// As [`replace_cache_file`], with contents that `write` writes, perhaps more than once. Only its
/// owner can read the file.
///
/// # Errors
/// Errors of the system and of `write`.
pub fn replace_cache_file_with(path: &Path, write: impl Fn(&mut File) -> io::Result<()>) -> io::Result<()> {
    // Another process may take a file that was just made, and is not locked yet, for a leftover.
    const TRIES: u32 = 5;
    for tried in 1.. {
        let mut new = beside(path)?;
        write(new.as_file_mut())?;
        match persist(new, path) {
            Ok(()) => break,
            Err(error) if error.kind() == ErrorKind::NotFound && tried < TRIES => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Gives a file its name, in place of a file that others may be reading.
fn persist(new: tempfile::NamedTempFile, path: &Path) -> io::Result<()> {
    // Locked until it has its name.
    let (_open, part) = new.keep().map_err(|error| error.error)?;
    file::replace(&part, path).inspect_err(|_| {
        // It only takes space.
        let _ = fs::remove_file(&part);
    })
}

/// Writes a file of a kind as [`replace_cache_file_with`] does, at a path that a user or a client chose.
///
/// # Errors
/// As [`replace_cache_file_with`], and an error if a link or a file is there that one of this kind may
/// not replace ([`OwnFile::check_no_link`]).
pub fn replace_own_file_with(
    path: &Path,
    kind: &OwnFile,
    write: impl Fn(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    kind.check_no_link(path)?;
    replace_cache_file_with(path, write)
}

/// Checks that [`replace_cache_file`] can write to `path`, and makes the directories.
///
/// # Errors
/// Errors of the system.
pub fn try_cache_file(path: &Path) -> io::Result<()> {
    beside(path).map(drop)
}

/// Removes the files beside `path`, with the same ending, that were written first, so that at most
/// `most` are left. A failure is not an error: they only take space.
pub fn forget_oldest(path: &Path, most: usize) {
    let Some(files) = path.parent().and_then(|dir| fs::read_dir(dir).ok()) else { return };
    let mut files: Vec<(SystemTime, PathBuf)> = files
        .flatten()
        .filter(|file| file.path().extension() == path.extension() && file.path() != path)
        .filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file.path())))
        .collect();
    files.sort();
    let excess = (files.len() + 1).saturating_sub(most);
    for (_, path) in files.into_iter().take(excess) {
        // Another process may have removed it already.
        let _ = fs::remove_file(path);
    }
}

/// Makes a locked file in the directory of `path`, and removes those that killed processes left.
fn beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let none = || io::Error::other("the path has no directory");
    let (dir, name) = path.parent().zip(path.file_name()).ok_or_else(none)?;
    fs::create_dir_all(dir)?;
    let prefix = format!(".{}.", name.to_string_lossy());
    remove_leftovers(dir, &prefix);
    let file = tempfile::Builder::new().prefix(&prefix).suffix(SUFFIX).tempfile_in(dir)?;
    // Until the process ends, however it ends.
    lock::lock(file.as_file())?;
    Ok(file)
}

/// Removes files that nobody holds a lock on. A failure is not an error: they only take space.
fn remove_leftovers(dir: &Path, prefix: &str) {
    let Ok(files) = fs::read_dir(dir) else { return };
    for file in files.flatten() {
        let name = file.file_name();
        let ours = name.to_str().is_some_and(|name| name.starts_with(prefix) && name.ends_with(SUFFIX));
        if ours
            && let Ok((open, _)) = input_file::open(&file.path())
            && lock::try_lock(&open).is_ok()
        {
            let _ = fs::remove_file(file.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_being_written_is_not() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("kept.json");
        let names = || {
            let files = fs::read_dir(dir.path()).unwrap();
            let mut names: Vec<_> =
                files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
            names.sort_unstable();
            names
        };
        let (stays, other) = (".kept.json.mine", ".other.json.abc.part");
        for name in [".kept.json.abc.part", stays, other] {
            fs::write(dir.path().join(name), "half").unwrap();
        }
        let busy = beside(&path).unwrap();
        replace_cache_file(&path, b"whole").unwrap();
        let written = busy.path().file_name().unwrap().to_str().unwrap().to_owned();
        let mut expected = [stays, other, "kept.json", &written].map(str::to_owned);
        expected.sort_unstable();
        assert_eq!(names(), expected);
        assert_eq!(read_cache_file(&path, 100).unwrap().as_deref(), Some("whole"));
        persist(busy, &path).unwrap();
        assert_eq!(names().len(), 3);
    }

    #[test]
    fn files_below_what_is_no_folder_are_absent() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        assert!(is_absent(&file));
        std::fs::write(&file, "x").unwrap();
        assert!(!is_absent(&file) && is_absent(&file.join("config.toml")));
        assert!(is_absent(Path::new("/dev/null/.config/terrace/config.toml")));
        assert!(!is_absent(dir.path()));
    }
}
