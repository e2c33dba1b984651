//! Checks of what the system supports, without a store.

use crate::choice::{DirectChoice, IoChoice};
use crate::error::StoreError;
use crate::io::{direct_alignment, open_engine, open_files};
use crate::limits::QueueDepth;
use std::io::{ErrorKind, Write};
use std::path::Path;
use terrace_model::ByteSize;
use terrace_platform::file;

/// Checks that io_uring is available.
///
/// # Errors
/// Why it is not.
pub fn check_io_uring() -> Result<(), StoreError> {
    let none = open_files(Vec::new(), DirectChoice::Off)?;
    open_engine(IoChoice::Uring, QueueDepth::fixed(8), None, &none).map(|_| ())
}

/// Returns the alignment of direct I/O on a file, or on files in a directory. A temporary file of a
/// few kilobytes is written to a directory.
///
/// # Errors
/// Why direct I/O is not possible.
pub fn check_direct_io(path: &Path) -> Result<ByteSize, StoreError> {
    if !path.is_dir() {
        return Ok(ByteSize(open_files(vec![path.into()], DirectChoice::On)?.align));
    }
    let failed = |source| StoreError::Open { path: path.into(), source };
    let (mut file, _) = file::scratch(path).map_err(|source| match source.kind() {
        ErrorKind::Unsupported => {
            StoreError::Direct { path: path.into(), reason: "the system has none".into() }
        }
        _ => failed(source),
    })?;
    // A file without blocks on the disk would be read at any alignment.
    file.write_all(&[1; 8 << 10]).map_err(failed)?;
    // Once the file itself is closed it is about to vanish, and not every system opens it again then.
    let mut reads = file.try_clone().and_then(file::shared).map_err(failed)?;
    direct_alignment(&mut reads)
        .map(ByteSize)
        .map_err(|reason| StoreError::Direct { path: path.into(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_answer_as_their_files_do() {
        let dir = tempfile::TempDir::new().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, vec![1u8; 64 << 10]).unwrap();
        assert_eq!(check_direct_io(dir.path()).ok(), check_direct_io(&file).ok());
        if cfg!(target_os = "linux") {
            let error = check_direct_io(Path::new("/proc/version")).unwrap_err().to_string();
            assert!(error.contains("/proc/version"), "{error}");
        }
        let _ = check_io_uring();
    }
}
