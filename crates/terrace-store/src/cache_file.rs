//! Files that are kept between runs: where they are, and those that are safe to delete.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// Where files of this user's runs are kept: `$XDG_CACHE_HOME/terrace`. `None` without a home.
pub fn user_cache_dir() -> Option<PathBuf> {
    Some(dirs::cache_dir()?.join("terrace"))
}

/// Where this user's settings are kept: `$XDG_CONFIG_HOME/terrace`. `None` without a home.
pub fn user_config_dir() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")))?;
    Some(base.join("terrace"))
}

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
    let dir = path.parent().ok_or_else(|| io::Error::other("it has no directory"))?;
    fs::create_dir_all(dir)?;
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(bytes)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
