//! Reads the identity of files and models from the file system.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use terrace_model::ModelFile;
use terrace_model::identity::{FileIdentity, FileState};
use terrace_platform::input_file;

/// Most bytes of a header that are read.
const MOST_HEADER: u64 = 64 << 20;

/// Returns the current state of the file at `path`.
///
/// # Errors
/// Errors of the system.
pub fn file_state(path: &Path) -> io::Result<FileState> {
    let meta = std::fs::metadata(path)?;
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    Ok(FileState {
        device: meta.dev(),
        inode: meta.ino(),
        size: meta.size(),
        modified: nanos(meta.mtime(), meta.mtime_nsec()),
        changed: nanos(meta.ctime(), meta.ctime_nsec()),
    })
}

/// Returns the current time, to which [`FileState::changed`] is compared, in nanoseconds since 1970.
pub fn now() -> i128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    i128::try_from(since).unwrap_or(i128::MAX)
}

/// Returns the identity of a model. Reads the bytes of its header again.
///
/// # Errors
/// Errors of the system, and an error for a model without files.
pub fn file_identity(model: &ModelFile) -> io::Result<FileIdentity> {
    let none = || io::Error::other("the model has no files");
    let first = model.shards.first().ok_or_else(none)?;
    let mut header = input_file::open(&first.path)?.0.take(first.data_offset.min(MOST_HEADER));
    let (mut crc, mut part) = (crc32fast::Hasher::new(), vec![0; 1 << 16]);
    loop {
        match header.read(&mut part)? {
            0 => break,
            n => crc.update(&part[..n]),
        }
    }
    FileIdentity::new(model, crc.finalize()).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn writing_and_replacing_are_seen() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("file");
        assert!(file_state(&path).is_err());
        fs::write(&path, "a").unwrap();
        let first = file_state(&path).unwrap();
        assert_eq!(file_state(&path).unwrap(), first);
        fs::write(&path, "ab").unwrap();
        let written = file_state(&path).unwrap();
        assert!(written.same_file(&first) && !written.same_bytes(&first));
        fs::write(dir.path().join("other"), "ab").unwrap();
        fs::rename(dir.path().join("other"), &path).unwrap();
        assert!(!file_state(&path).unwrap().same_file(&written));
    }
}
