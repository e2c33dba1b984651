//! Connections between processes of this machine. There are no sockets of the file system: processes are reached
//! through what they hand to their children.

use super::handed;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener};
use std::os::windows::io::{AsRawSocket, FromRawSocket};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

pub use std::net::TcpStream as Stream;

/// Connects to the socket at `path`: there is none.
///
/// # Errors
/// [`ErrorKind::Unsupported`].
pub fn connect(_: &Path, _: Duration) -> io::Result<Stream> {
    Err(ErrorKind::Unsupported.into())
}

/// Returns the number of the user whose process is at the other end, which the system does not tell.
///
/// # Errors
/// [`ErrorKind::Unsupported`].
pub fn peer_user(_: &Stream) -> io::Result<u32> {
    Err(ErrorKind::Unsupported.into())
}

/// Starts a program, and returns it with this end of a connection, whose other end it gets by [`of_stdin`].
///
/// # Errors
/// The system's, and an error if another process connects first.
pub fn spawn_connected(command: &mut Command) -> io::Result<(Child, Stream)> {
    let (own, other) = pair()?;
    Ok((handed::spawn(command, other.as_raw_socket())?, own))
}

/// Makes two ends of a connection.
fn pair() -> io::Result<(Stream, Stream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let one = Stream::connect(listener.local_addr()?)?;
    let (other, peer) = listener.accept()?;
    if peer != one.local_addr()? {
        return Err(io::Error::other("another process has connected"));
    }
    for end in [&one, &other] {
        // Requests and answers take turns.
        end.set_nodelay(true)?;
    }
    Ok((one, other))
}

/// Returns the end of a connection that this process got on its standard input.
///
/// # Errors
/// The system's.
pub fn of_stdin() -> io::Result<Stream> {
    // SAFETY: a new socket, which is what the parent calls it.
    Ok(unsafe { Stream::from_raw_socket(handed::take()?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    /// Set for the child, to a line that it sends back.
    const VARIABLE: &str = "TERRACE_TEST_OF_STDIN";

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a child is told what it is")]
    fn a_child_gets_an_end_as_its_standard_input() {
        if let Some(line) = std::env::var_os(VARIABLE) {
            of_stdin().unwrap().write_all(line.as_encoded_bytes()).unwrap();
            std::process::exit(0);
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "windows::local_socket::tests::a_child_gets_an_end_as_its_standard_input"])
            .env(VARIABLE, "hello");
        let (mut child, mut own) = spawn_connected(&mut command).unwrap();
        own.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut text = String::new();
        own.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        assert!(child.wait().unwrap().success());
    }
}
