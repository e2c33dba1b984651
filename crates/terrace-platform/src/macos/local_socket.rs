//! Sockets of the file system: connections that are not waited for without end, and whose process is at the other end.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

pub use super::handed::{of_stdin, spawn_connected};
pub use std::os::unix::net::{UnixListener as Listener, UnixStream as Stream};

/// Connects to the socket at `path`. A listener whose queue is full refuses at once, as if there were none: nothing is
/// waited for.
///
/// # Errors
/// Errors of the system.
pub fn connect(path: &Path, _: Duration) -> io::Result<Stream> {
    Stream::connect(path)
}

/// Returns the number of the user whose process is at the other end.
///
/// # Errors
/// The system's.
pub fn peer_user(stream: &Stream) -> io::Result<u32> {
    let (mut user, mut group) = (0, 0);
    // SAFETY: an open socket, and room for two numbers.
    match unsafe { libc::getpeereid(stream.as_raw_fd(), &raw mut user, &raw mut group) } {
        0 => Ok(user),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_end_is_this_user() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sock");
        let listener = Listener::bind(&path).unwrap();
        let stream = connect(&path, Duration::ZERO).unwrap();
        assert_eq!(Some(peer_user(&stream).unwrap()), crate::owner::user());
        drop(listener);
        assert_eq!(connect(&path, Duration::ZERO).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
