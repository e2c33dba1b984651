//! The socket's file, and who may connect.

use crate::settings::Control;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use terrace_host::attach;
use terrace_platform::local_socket::{self, Listener, Stream};
use terrace_platform::owner;

/// The socket's file.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    /// The process that made it: a copy of it must leave it there.
    process: u32,
}

impl Socket {
    /// Makes the socket; `None` if the user wants none.
    ///
    /// # Errors
    /// A line that says what is in the way.
    pub fn bind(control: &Control) -> Result<Option<(Self, Listener)>, String> {
        let process = std::process::id();
        let path = match control {
            Control::Off => return Ok(None),
            Control::At(path) => path.clone(),
            Control::Auto => {
                let folder = folder();
                own(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
                for (_, path) in attach::processes(&folder) {
                    // Of processes that were killed.
                    let _ = remove_dead(&path);
                }
                attach::socket(&folder, process)
            }
        };
        let bound = remove_dead(&path).and_then(|()| Listener::bind(&path)).and_then(|listener| {
            owner::make_own(&path)?;
            Ok(listener)
        });
        match bound {
            Ok(listener) => Ok(Some((Self { path, process }, listener))),
            Err(error) => Err(format!("{}: {error}", path.display())),
        }
    }

    /// Removes the file.
    pub fn remove(&self) {
        if self.process == std::process::id() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the folder is that of the program's user")]
fn folder() -> PathBuf {
    attach::folder(std::env::var_os("XDG_RUNTIME_DIR"), owner::user().unwrap_or_default())
}

/// Makes the folder, or checks that it is the user's own and nobody else can write there.
fn own(folder: &Path) -> io::Result<()> {
    match owner::make_own_folder(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let meta = std::fs::symlink_metadata(folder)?;
    if !meta.is_dir() || owner::of(&meta) != owner::user() || owner::others_may_use(&meta) {
        return Err(io::Error::other("the folder is not the user's alone"));
    }
    Ok(())
}

/// Removes a socket that nobody listens to.
fn remove_dead(path: &Path) -> io::Result<()> {
    let meta = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        meta => meta?,
    };
    if !owner::is_socket(&meta) {
        return Err(io::Error::other("there is a file that is no socket"));
    }
    match local_socket::connect(path, Duration::ZERO) {
        Ok(_) => Err(io::Error::other("another process listens there")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) => Err(error),
    }
}

/// Checks that the process at the other end is the user's, or the administrator's.
///
/// # Errors
/// It is another's.
pub fn check_peer(stream: &Stream) -> Result<(), String> {
    match local_socket::peer_user(stream) {
        Ok(peer) if peer == owner::ADMINISTRATOR || Some(peer) == owner::user() => Ok(()),
        _ => Err("another user's process".into()),
    }
}
