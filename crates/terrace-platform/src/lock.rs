//! Locks between processes, which end with the process that holds them, however it ends. They keep out others that ask
//! for them, and nobody from reading and writing.

use crate::sys;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Locks an open file until it is closed. Waits until no other process holds the lock.
///
/// # Errors
/// The system's.
pub fn lock(file: &File) -> io::Result<()> {
    sys::lock::lock(file)
}

/// Locks an open file until it is closed, unless another process holds the lock.
///
/// # Errors
/// The system's, and [`TryLockError::WouldBlock`].
pub fn try_lock(file: &File) -> Result<(), TryLockError> {
    sys::lock::try_lock(file)
}

/// The turn to replace a file, until this is dropped.
#[derive(Debug)]
pub struct Turn {
    _held: sys::lock::Turn,
}

/// Waits until no other process or thread has its turn to replace the file at `path`, for up to `patience`. `None` if one
/// takes longer, and where nothing can be locked: there may be no such file yet.
pub fn turn(path: &Path, patience: Duration) -> Option<Turn> {
    Some(Turn { _held: sys::lock::turn(path, patience)? })
}

/// A turn that is a lock on the file that will be replaced, where that is possible.
#[cfg(not(windows))]
pub fn lock_at(path: &Path, patience: Duration) -> Option<File> {
    use crate::file::FileId;
    use std::time::Instant;

    let until = Instant::now() + patience;
    loop {
        let (file, _) = crate::input_file::open(path).ok()?;
        match file.try_lock() {
            // It may have been replaced in between.
            Ok(()) if FileId::of(&file).is_ok_and(|this| FileId::at(path) == Some(this)) => {
                return Some(file);
            }
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            Err(TryLockError::Error(_)) => return None,
        }
        if Instant::now() > until {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, SeekFrom, Write};

    #[test]
    fn a_locked_file_can_be_read_and_written_by_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "text").unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let (first, mut second) = (open(), open());
        lock(&first).unwrap();
        assert!(matches!(try_lock(&second), Err(TryLockError::WouldBlock)));
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
        second.write_all(b"more than it was").unwrap();
        let mut text = String::new();
        (&first).seek(SeekFrom::Start(0)).unwrap();
        (&first).read_to_string(&mut text).unwrap();
        assert_eq!(text, "more than it was");
        drop(first);
        try_lock(&second).unwrap();
    }

    #[test]
    fn one_has_its_turn_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let (path, new) = (dir.path().join("a file"), dir.path().join("new"));
        std::fs::write(&path, "0").unwrap();
        let add = || {
            for _ in 0..20 {
                let _mine = turn(&path, Duration::from_secs(30)).unwrap();
                let number: u32 = std::fs::read_to_string(&path).unwrap().parse().unwrap();
                std::fs::write(&new, (number + 1).to_string()).unwrap();
                crate::file::replace(&new, &path).unwrap();
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(add);
            }
        });
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "60");
        let mine = turn(&path, Duration::ZERO).unwrap();
        let other = || turn(&path, Duration::from_millis(10)).is_some();
        assert!(!std::thread::scope(|scope| scope.spawn(other).join().unwrap()));
        drop(mine);
        assert!(std::thread::scope(|scope| scope.spawn(other).join().unwrap()));
    }
}
