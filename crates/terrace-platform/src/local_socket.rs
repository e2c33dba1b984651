//! Connections to sockets of the file system, which are not waited for without end.

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_socket, socket_with,
};
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Connects to the socket at `path`. A listener whose queue is full, because its process is stopped or
/// busy, is waited for up to `most`; zero means one attempt.
///
/// # Errors
/// Errors of the system; [`ErrorKind::TimedOut`] if the queue stays full.
pub fn connect(path: &Path, most: Duration) -> io::Result<UnixStream> {
    let until = Instant::now() + most;
    let address = SocketAddrUnix::new(path)?;
    loop {
        // With this flag a full queue is an error; without it, connecting waits for room there.
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match connect_socket(&socket, &address) {
            Ok(()) => {
                let stream = UnixStream::from(socket);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_full_queue_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sock");
        let listener = UnixListener::bind(&path).unwrap();
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
        connect(&path, Duration::ZERO).unwrap();
        drop(listener);
        assert_eq!(connect(&path, Duration::ZERO).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
}
