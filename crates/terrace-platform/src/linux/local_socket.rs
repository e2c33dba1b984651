//! Sockets of the file system: connections that are not waited for without end, and whose process is at
//! the other end.

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_socket, socket_with,
};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Duration, Instant};

pub use super::handed::{of_stdin, spawn_connected};
pub use std::os::unix::net::{UnixListener as Listener, UnixStream as Stream};

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Connects to the socket at `path`. A listener whose queue is full, because its process is stopped or
/// busy, is waited for up to `most`; zero means one attempt.
///
/// # Errors
/// Errors of the system; [`ErrorKind::TimedOut`] if the queue stays full.
pub fn connect(path: &Path, most: Duration) -> io::Result<Stream> {
    let until = Instant::now() + most;
    let address = SocketAddrUnix::new(path)?;
    loop {
        // With this flag a full queue is an error; without it, connecting waits for room there.
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match connect_socket(&socket, &address) {
            Ok(()) => {
                let stream = Stream::from(socket);
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(PAUSE),
            Err(Errno::AGAIN) => {
                return Err(io::Error::new(ErrorKind::TimedOut, "its process accepts no connections"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the number of the user whose process is at the other end.
///
/// # Errors
/// The system's.
pub fn peer_user(stream: &Stream) -> io::Result<u32> {
    Ok(rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sock");
        let listener = Listener::bind(&path).unwrap();
        let mut held = Vec::new();
        // Nobody accepts, as in a process that is stopped.
        let full = loop {
            match connect(&path, Duration::ZERO) {
                Ok(stream) if held.len() < 100_000 => held.push(stream),
                Ok(_) => panic!("a queue without an end"),
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::TimedOut, "{full}");
        assert_eq!(connect(&path, PAUSE).unwrap_err().kind(), ErrorKind::TimedOut);
        listener.accept().unwrap();
        let stream = connect(&path, Duration::ZERO).unwrap();
        assert_eq!(Some(peer_user(&stream).unwrap()), crate::owner::user());
        drop(listener);
        assert_eq!(connect(&path, Duration::ZERO).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
}
