//! Whose a folder and a process are. In `/tmp`, anyone can make a folder with the name of another user's.

use super::error::AttachError;
use std::io::ErrorKind;
use std::path::Path;
use terrace_platform::local_socket::{Stream, peer_user};
use terrace_platform::owner;

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
        Ok(meta) if owner::of(&meta) != Some(user) => {
            let other = owner::of(&meta).unwrap_or_default();
            Err(foreign(format!("belongs to user {other}, not to user {user}")))
        }
        Ok(meta) if owner::others_may_write(&meta) => Err(foreign("other users can write to it".into())),
        Ok(_) => Ok(()),
    }
}

/// Checks that the process at the other end is the user's or the administrator's.
///
/// # Errors
/// [`AttachError::Foreign`].
pub fn peer(stream: &Stream, socket: &Path, user: u32) -> Result<(), AttachError> {
    let foreign = |reason: String| AttachError::Foreign { path: socket.to_owned(), reason };
    let peer = peer_user(stream).map_err(|error| foreign(error.to_string()))?;
    match peer == user || peer == owner::ADMINISTRATOR {
        true => Ok(()),
        false => Err(foreign(format!("the process that listens belongs to user {peer}, not to user {user}"))),
    }
}
