//! Files that are kept between runs and safe to delete.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

/// The file's text, up to `most` bytes; `None` if there is no such file.
///
/// # Errors
/// The system's, and [`ErrorKind::InvalidData`] if it is not text.
pub fn read_cache_file(path: &Path, most: u64) -> io::Result<Option<String>> {
    let mut text = String::new();
    match File::open(path) {
        Ok(file) => file.take(most).read_to_string(&mut text).map(|_| Some(text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the file, or makes it, with its directories: readers see the old one or the new one.
///
/// # Errors
/// The system's.
pub fn replace_cache_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = beside(path)?;
    file.write_all(bytes)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Whether [`replace_cache_file`] could write here; makes the directories.
///
/// # Errors
/// The system's.
pub fn try_cache_file(path: &Path) -> io::Result<()> {
    beside(path).map(drop)
}

fn beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let dir = path.parent().ok_or_else(|| io::Error::other("the path has no directory"))?;
    fs::create_dir_all(dir)?;
    tempfile::NamedTempFile::new_in(dir)
}
