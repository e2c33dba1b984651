//! Calls of Win32: results, handles, and names as it takes and writes them.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::os::windows::io::{FromRawHandle, OwnedHandle};
use std::path::{Component, Path, PathBuf, Prefix};
use windows_sys::Win32::Foundation::{GetLastError, HANDLE, INVALID_HANDLE_VALUE, SetLastError};
use windows_sys::core::BOOL;

/// Turns the result of a call into an error if it is false.
pub fn check(result: BOOL) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes a handle that a call has returned.
///
/// # Errors
/// That of the call.
///
/// # Safety
/// The handle is null, invalid, or nobody else's.
pub unsafe fn owned(handle: HANDLE) -> io::Result<OwnedHandle> {
    if handle.is_null() || handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: by the contract.
    Ok(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// Returns a name with the zero that ends it.
pub fn wide(name: &OsStr) -> Vec<u16> {
    name.encode_wide().chain([0]).collect()
}

/// Returns the absolute name that begins with `\\\\?\\`: it may be longer than 260 characters.
pub fn verbatim(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let Some(Component::Prefix(prefix)) = path.components().next() else { return Ok(path) };
    let mut name = OsString::new();
    match prefix.kind() {
        Prefix::Disk(_) => {
            name.push(r"\\?\");
            name.push(&path);
        }
        Prefix::UNC(server, share) => {
            name.push(r"\\?\UNC\");
            name.push(server);
            name.push(r"\");
            name.push(share);
            name.push(path.components().skip(1).collect::<PathBuf>());
        }
        _ => name.push(&path),
    }
    Ok(name.into())
}

/// Returns [`verbatim`] with the zero that ends it.
pub fn long(path: &Path) -> io::Result<Vec<u16>> {
    Ok(wide(verbatim(path)?.as_os_str()))
}

/// Reads a text from a call that writes as much of it as there is room for, and returns its length, or the
/// length for which there is no room.
pub fn text(call: impl Fn(&mut [u16]) -> u32) -> io::Result<OsString> {
    let mut room = vec![0; 512];
    loop {
        // SAFETY: sets this thread's own number: some calls leave it as it is where a text is empty.
        unsafe { SetLastError(0) };
        let len = call(&mut room) as usize;
        // SAFETY: reads this thread's own number.
        if len == 0 && unsafe { GetLastError() } != 0 {
            return Err(io::Error::last_os_error());
        }
        if len < room.len() {
            return Ok(OsString::from_wide(&room[..len]));
        }
        let more = (len + 1).max(2 * room.len());
        room.resize(more, 0);
    }
}

/// Returns the size of a structure, as calls take it.
pub const fn size<T>() -> u32 {
    size_of::<T>() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_a_prefix_once() {
        for (path, expected) in [
            (r"C:\a folder\file", r"\\?\C:\a folder\file"),
            (r"\\server\share\file", r"\\?\UNC\server\share\file"),
            (r"\\?\C:\file", r"\\?\C:\file"),
            ("C:/a/../b", r"\\?\C:\b"),
        ] {
            assert_eq!(verbatim(Path::new(path)).unwrap(), Path::new(expected), "{path}");
        }
    }
}
