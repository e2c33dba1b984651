//! Whose files are, and who may do what with them. Users have no numbers, and files lists of rights, which folders
//! pass on: what is made below a user's own folders is the user's alone.

use super::call::{check, owned};
use super::file::to_ask;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::os::windows::io::AsRawHandle;
use std::path::Path;
use windows_sys::Win32::Foundation::{ERROR_SUCCESS, LocalFree};
use windows_sys::Win32::Security::Authorization::{GetSecurityInfo, SE_FILE_OBJECT};
use windows_sys::Win32::Security::{
    CheckTokenMembership, EqualSid, GetTokenInformation, OWNER_SECURITY_INFORMATION, TOKEN_QUERY, TOKEN_USER,
    TokenUser,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_ADD_FILE, FILE_ADD_SUBDIRECTORY, FILE_FLAG_BACKUP_SEMANTICS, READ_CONTROL,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

/// Number of the administrator, where users have numbers.
pub const ADMINISTRATOR: u32 = 0;

/// None: users have no numbers.
pub fn user() -> Option<u32> {
    None
}

/// None: users have no numbers.
pub fn of(_: &Metadata) -> Option<u32> {
    None
}

/// The user that this process acts for: `TOKEN_USER`, and the number that it points to.
fn token_user() -> io::Result<Vec<u64>> {
    let mut token = std::ptr::null_mut();
    // SAFETY: this process, and a place for a new handle.
    let token = unsafe {
        check(OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token))?;
        owned(token)?
    };
    // Words, because it begins with an address; the longest number has 68 bytes.
    let mut room = vec![0u64; 16];
    let (place, mut len) = (room.as_mut_ptr().cast(), size_of_val(&room[..]) as u32);
    // SAFETY: an open token, and room of that length.
    check(unsafe { GetTokenInformation(token.as_raw_handle(), TokenUser, place, len, &raw mut len) })?;
    Ok(room)
}

/// Returns whether an open file belongs to the user that this process acts for, or to a group that the user acts
/// as: what administrators make belongs to their group.
///
/// # Errors
/// The system's.
pub fn is_own(file: &File) -> io::Result<bool> {
    let (mut owner, mut facts) = (std::ptr::null_mut(), std::ptr::null_mut());
    let handle = file.as_raw_handle();
    // SAFETY: an open file, and places for two addresses; the others are not asked for.
    let code = unsafe {
        let of = OWNER_SECURITY_INFORMATION;
        let (none, no_list) = (std::ptr::null_mut(), std::ptr::null_mut);
        GetSecurityInfo(
            handle,
            SE_FILE_OBJECT,
            of,
            &raw mut owner,
            none,
            no_list(),
            no_list(),
            &raw mut facts,
        )
    };
    if code != ERROR_SUCCESS {
        return Err(io::Error::from_raw_os_error(code.cast_signed()));
    }
    let belongs = token_user().and_then(|user| {
        let mut member = 0;
        // SAFETY: the system's structure, whose number lies in the same memory; the owner lies in the facts.
        unsafe {
            let user = (*user.as_ptr().cast::<TOKEN_USER>()).User.Sid;
            if EqualSid(user, owner) != 0 {
                return Ok(true);
            }
            check(CheckTokenMembership(std::ptr::null_mut(), owner, &raw mut member))?;
        }
        Ok(member != 0)
    });
    // SAFETY: the facts, which nothing uses any more.
    unsafe { LocalFree(facts) };
    belongs
}

/// Returns whether a folder belongs to the user that this process acts for ([`is_own`]).
///
/// # Errors
/// The system's.
#[expect(clippy::disallowed_methods, reason = "a folder, to ask about it")]
pub fn is_own_folder(folder: &Path) -> io::Result<bool> {
    let options = &mut OpenOptions::new();
    is_own(&options.access_mode(READ_CONTROL).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(folder)?)
}

/// True, since no bits of a file tell.
pub fn others_may_write(_: &Metadata) -> bool {
    true
}

/// True, since no bits of a file tell.
pub fn others_may_use(_: &Metadata) -> bool {
    true
}

/// Returns whether it may be a program: names tell which files are.
pub fn is_program(meta: &Metadata) -> bool {
    meta.is_file()
}

/// False: sockets have no names.
pub fn is_socket(_: &Metadata) -> bool {
    false
}

/// Returns whether this process may make files in a folder.
#[expect(clippy::disallowed_methods, reason = "a folder, to ask about it")]
pub fn may_write_in(folder: &Path) -> bool {
    let rights = FILE_ADD_FILE | FILE_ADD_SUBDIRECTORY;
    let options = &mut OpenOptions::new();
    options.access_mode(rights).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(folder).is_ok()
        && to_ask(folder, FILE_FLAG_BACKUP_SEMANTICS).is_ok()
}

/// Makes a folder with the rights of the one that it is in. One that is there is an error.
///
/// # Errors
/// The system's.
pub fn make_own_folder(folder: &Path) -> io::Result<()> {
    std::fs::create_dir(folder)
}

/// Makes a folder, and those around it, with the rights of the one that they are in. Those that are there stay as
/// they are.
///
/// # Errors
/// The system's.
pub fn make_own_folders(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)
}

/// Lets only the owner read and write a file, for which a file's folder is the place here.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`].
pub fn make_own(_: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Makes `path` a symbolic link to the file `target`, or, since not every user may make these, another name of the file.
/// A relative target is one below the folder of `path`.
///
/// # Errors
/// The system's; [`io::ErrorKind::AlreadyExists`] if something is there.
pub fn link(target: &Path, path: &Path) -> io::Result<()> {
    match std::os::windows::fs::symlink_file(target, path) {
        // wine 8 says so, and makes none.
        Ok(()) if path.symlink_metadata().is_ok() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        _ => std::fs::hard_link(path.parent().unwrap_or(path).join(target), path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::FileId;

    #[test]
    fn what_this_process_makes_is_its_user_s() {
        let dir = tempfile::tempdir().unwrap();
        assert!(is_own(&File::create(dir.path().join("file")).unwrap()).unwrap());
        assert!(is_own_folder(dir.path()).unwrap());
        assert!(may_write_in(dir.path()));
        assert!(!may_write_in(&dir.path().join("none")));
    }

    #[test]
    fn a_link_leads_to_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let (blob, links) = (dir.path().join("blob"), dir.path().join("links"));
        std::fs::write(&blob, "text").unwrap();
        std::fs::create_dir(&links).unwrap();
        let path = links.join("name");
        link(&Path::new("..").join("blob"), &path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
        assert_eq!(FileId::at(&path), FileId::at(&blob));
    }
}
