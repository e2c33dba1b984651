//! Whose a folder and a process are. In `/tmp`, anyone can make a folder with the name of another user's.

use super::error::AttachError;
use rustix::net::sockopt::socket_peercred;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Checks that a folder of sockets is the user's, and that no one else can write there. A folder that does
/// not exist has no sockets.
///
/// # Errors
/// [`AttachError::Foreign`].
pub fn folder(folder: &Path, user: u32) -> Result<(), AttachError> {
    let foreign = |reason: String| AttachError::Foreign { path: folder.to_owned(), reason };
    match std::fs::symlink_metadata(folder) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        Err(error) => Err(foreign(error.to_string())),
        Ok(meta) if !meta.is_dir() => Err(foreign("not a folder".into())),
        Ok(meta) if meta.uid() != user => {
            Err(foreign(format!("belongs to user {}, not to user {user}", meta.uid())))
        }
        Ok(meta) if meta.mode() & 0o022 != 0 => Err(foreign("other users can write to it".into())),
        Ok(_) => Ok(()),
    }
}

/// Checks that the process at the other end is the user's or the administrator's.
///
/// # Errors
/// [`AttachError::Foreign`].
pub fn peer(stream: &UnixStream, socket: &Path, user: u32) -> Result<(), AttachError> {
    let foreign = |reason: String| AttachError::Foreign { path: socket.to_owned(), reason };
    let peer = socket_peercred(stream).map_err(|error| foreign(error.to_string()))?.uid.as_raw();
    match peer == user || peer == 0 {
        true => Ok(()),
        false => Err(foreign(format!("the process that listens belongs to user {peer}, not to user {user}"))),
    }
}
