//! The socket's file, and who may connect.

use crate::settings::Control;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use terrace_host::attach;
use terrace_platform::local_socket;

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
    pub fn bind(control: &Control) -> Result<Option<(Self, UnixListener)>, String> {
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
        let bound = remove_dead(&path).and_then(|()| UnixListener::bind(&path)).and_then(|listener| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
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
    attach::folder(std::env::var_os("XDG_RUNTIME_DIR"), user())
}

fn user() -> u32 {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() }
}

/// Makes the folder, or checks that it is the user's own and nobody else can write there.
fn own(folder: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let meta = std::fs::symlink_metadata(folder)?;
    if !meta.is_dir() || meta.uid() != user() || meta.mode() & 0o077 != 0 {
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
    if !meta.file_type().is_socket() {
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
pub fn check_peer(stream: &UnixStream) -> Result<(), String> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option's value is such a structure, of this length.
    let status = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if status == 0 && (peer.uid == 0 || peer.uid == user()) {
        Ok(())
    } else {
        Err("another user's process".into())
    }
}

/// Keeps this thread, and those that it starts, from handling signals.
pub fn block_signals() {
    // SAFETY: a set that is filled before it is read.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}
