use super::call::{check, owned};
use crate::file::State;
use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io;
use std::marker::PhantomData;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::io::{AsRawHandle, OwnedHandle};
use std::path::Path;
use std::time::Duration;
use windows_sys::Win32::Foundation::{ERROR_IO_PENDING, ERROR_LOCK_VIOLATION, WAIT_ABANDONED, WAIT_OBJECT_0};
use windows_sys::Win32::Storage::FileSystem::{
    LOCK_FILE_FLAGS, LOCKFILE_EXCLUSIVE_LOCK, LOCKFILE_FAIL_IMMEDIATELY, LockFileEx,
};
use windows_sys::Win32::System::IO::OVERLAPPED;
use windows_sys::Win32::System::Threading::{CreateMutexW, ReleaseMutex, WaitForSingleObject};

/// Locks keep all others from the bytes that are locked, so it is one that no file has: that at 2^62.
const PLACE: u32 = 1 << 30;

fn lock_with(file: &File, flags: LOCK_FILE_FLAGS) -> io::Result<()> {
    let mut place = OVERLAPPED::default();
    place.Anonymous.Anonymous.OffsetHigh = PLACE;
    let flags = LOCKFILE_EXCLUSIVE_LOCK | flags;
    // SAFETY: an open file that is not one for overlapped transfers, so that the call has ended when it returns.
    check(unsafe { LockFileEx(file.as_raw_handle(), flags, 0, 1, 0, &raw mut place) })
}

pub fn lock(file: &File) -> io::Result<()> {
    lock_with(file, 0)
}

pub fn try_lock(file: &File) -> Result<(), TryLockError> {
    const HELD: [u32; 2] = [ERROR_LOCK_VIOLATION, ERROR_IO_PENDING];
    lock_with(file, LOCKFILE_FAIL_IMMEDIATELY).map_err(|error| match error.raw_os_error() {
        Some(code) if HELD.contains(&code.cast_unsigned()) => TryLockError::WouldBlock,
        _ => TryLockError::Error(error),
    })
}

/// A mutex of the whole machine: a file that one has open, not every file system lets others replace.
#[derive(Debug)]
pub struct Turn {
    mutex: OwnedHandle,
    /// The thread that has waited for it is the one to let it go.
    _of_a_thread: PhantomData<*const ()>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // SAFETY: a mutex that this thread has.
        unsafe { ReleaseMutex(self.mutex.as_raw_handle()) };
    }
}

pub fn turn(path: &Path, patience: Duration) -> Option<Turn> {
    let name = mutex_name(path)?;
    // SAFETY: a name that ends with zero; the handle is a new one.
    let mutex = unsafe { owned(CreateMutexW(std::ptr::null(), 0, name.as_ptr())) }.ok()?;
    let patience = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX - 1);
    // SAFETY: an open mutex.
    let waited = unsafe { WaitForSingleObject(mutex.as_raw_handle(), patience) };
    // A process that ended during its turn has abandoned it.
    matches!(waited, WAIT_OBJECT_0 | WAIT_ABANDONED).then_some(Turn { mutex, _of_a_thread: PhantomData })
}

/// The folder's number and the end of the file's name, whose case does not count. Two files with one name of a mutex
/// would only wait for each other.
fn mutex_name(path: &Path) -> Option<Vec<u16>> {
    /// Names of mutexes have at most 260 characters.
    const MOST: usize = 160;
    let folder = State::at(path.parent()?).ok()?.id;
    let file: Vec<u16> = path.file_name()?.to_ascii_lowercase().encode_wide().collect();
    let mut name: Vec<u16> =
        OsString::from(format!(r"Global\terrace-{:x}-{:x}-", folder.device, folder.number))
            .encode_wide()
            .collect();
    name.extend(&file[file.len().saturating_sub(MOST)..]);
    name.push(0);
    Some(name)
}
