//! Files that are kept between runs and can be deleted at any time.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

/// Reads the file's text, up to `most` bytes; `None` if the file does not exist.
///
/// # Errors
/// Errors of the system, and [`ErrorKind::InvalidData`] if the file is not text.
pub fn read_cache_file(path: &Path, most: u64) -> io::Result<Option<String>> {
    let mut text = String::new();
    match File::open(path) {
        Ok(file) => file.take(most).read_to_string(&mut text).map(|_| Some(text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the file and its directories. Readers see the old file or the new one, never a part.
///
/// # Errors
/// Errors of the system.
pub fn replace_cache_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = beside(path)?;
    file.write_all(bytes)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Checks that [`replace_cache_file`] can write to `path`, and makes the directories.
///
/// # Errors
/// Errors of the system.
pub fn try_cache_file(path: &Path) -> io::Result<()> {
    beside(path).map(drop)
}

fn beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let dir = path.parent().ok_or_else(|| io::Error::other("the path has no directory"))?;
    fs::create_dir_all(dir)?;
    tempfile::NamedTempFile::new_in(dir)
}
