//! Whose files are, and who may do what with them.

use rustix::fs::{Access, access};
use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

/// Number of the administrator.
pub const ADMINISTRATOR: u32 = 0;

/// Returns the number of the user that this process acts for; `None` where users have no numbers.
pub fn user() -> Option<u32> {
    Some(rustix::process::geteuid().as_raw())
}

/// Returns the number of the user that a file belongs to; `None` where users have no numbers.
pub fn of(meta: &Metadata) -> Option<u32> {
    Some(meta.uid())
}

/// Returns whether an open file belongs to the user that this process acts for.
///
/// # Errors
/// The system's.
pub fn is_own(file: &File) -> io::Result<bool> {
    Ok(of(&file.metadata()?) == user())
}

/// Returns whether a folder belongs to the user that this process acts for and, where files have bits for
/// that, nobody else may write to it.
///
/// # Errors
/// The system's.
pub fn is_own_folder(folder: &Path) -> io::Result<bool> {
    let meta = folder.metadata()?;
    Ok(of(&meta) == user() && !others_may_write(&meta))
}

/// Returns whether other users than the owner may write to it, or the system does not tell.
pub fn others_may_write(meta: &Metadata) -> bool {
    meta.mode() & 0o022 != 0
}

/// Returns whether other users than the owner may do anything with it.
pub fn others_may_use(meta: &Metadata) -> bool {
    meta.mode() & 0o077 != 0
}

/// Returns whether it may be run as a program, by anyone.
pub fn is_program(meta: &Metadata) -> bool {
    meta.is_file() && meta.mode() & 0o111 != 0
}

/// Returns whether it is a socket with a name.
pub fn is_socket(meta: &Metadata) -> bool {
    meta.file_type().is_socket()
}

/// Returns whether this process may make files in a folder.
pub fn may_write_in(folder: &Path) -> bool {
    access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// Makes a folder that only its owner may use. One that is there is an error.
///
/// # Errors
/// The system's.
pub fn make_own_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(folder)
}

/// Makes a folder that only its owner may use, and those around it. Those that are there stay as they are.
///
/// # Errors
/// The system's.
pub fn make_own_folders(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Lets only the owner read and write a file.
///
/// # Errors
/// The system's.
pub fn make_own(path: &Path) -> io::Result<()> {
    std::fs::set_permissions(path, Permissions::from_mode(0o600))
}

/// Makes `path` a symbolic link to `target`.
///
/// # Errors
/// The system's; [`io::ErrorKind::AlreadyExists`] if something is there.
pub fn link(target: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}
