pub use crate::lock::lock_at as turn;
use std::fs::{File, TryLockError};
use std::io;

pub type Turn = File;

pub fn lock(file: &File) -> io::Result<()> {
    file.lock()
}

pub fn try_lock(file: &File) -> Result<(), TryLockError> {
    file.try_lock()
}
