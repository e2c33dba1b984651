//! Connections that a process hands to its child.

use super::local_socket::Stream;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};

/// Starts a program, and returns it with this end of a connection, whose other end it gets by [`of_stdin`].
///
/// # Errors
/// The system's.
pub fn spawn_connected(command: &mut Command) -> io::Result<(Child, Stream)> {
    let (own, other) = Stream::pair()?;
    Ok((command.stdin(OwnedFd::from(other)).spawn()?, own))
}

/// Returns the end of a connection that is this process's standard input.
///
/// # Errors
/// The system's.
pub fn of_stdin() -> io::Result<Stream> {
    Ok(Stream::from(io::stdin().as_fd().try_clone_to_owned()?))
}
