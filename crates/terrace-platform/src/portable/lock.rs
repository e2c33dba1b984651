use std::fs::{File, TryLockError};
use std::io;

pub type Turn = File;

pub fn lock(file: &File) -> io::Result<()> {
    file.lock()
}

pub fn try_lock(file: &File) -> Result<(), TryLockError> {
    file.try_lock()
}

#[cfg(not(windows))]
pub use crate::lock::lock_at as turn;

/// Plain std's locks would keep this process from reading the file.
#[cfg(windows)]
pub fn turn(_: &std::path::Path, _: std::time::Duration) -> Option<Turn> {
    None
}
