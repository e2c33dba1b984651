//! ggml's protocol as far as Terrace speaks it itself: questions to a server, each of which has to be
//! answered by a deadline, however slowly bytes come.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The protocol of the release that is linked (`ggml-rpc.h`): this major version, and no newer minor one. The commands
/// below are numbered the same in versions 7 and 8.
pub use crate::pin::layout::LINKED_PROTOCOL as PROTOCOL;

/// `RPC_CMD_GET_ALIGNMENT`.
pub const GET_ALIGNMENT: u8 = 1;
/// `RPC_CMD_GET_MAX_SIZE`.
pub const GET_MAX_SIZE: u8 = 2;
/// `RPC_CMD_GET_DEVICE_MEMORY`.
pub const GET_DEVICE_MEMORY: u8 = 11;
/// `RPC_CMD_HELLO`, the same in all versions.
pub const HELLO: u8 = 14;
/// `RPC_CMD_DEVICE_COUNT`.
pub const DEVICE_COUNT: u8 = 15;
/// Size in bytes of the capabilities that each side sends. All zero means plain TCP.
pub const CAPABILITIES: usize = 24;
/// Size in bytes of the answer to [`HELLO`]: major, minor, patch, padding, capabilities.
pub const HELLO_ANSWER: usize = 4 + CAPABILITIES;

/// A connection to a server.
pub struct Conversation {
    stream: TcpStream,
    /// When the last answer has to be there.
    end: Instant,
}

impl Conversation {
    /// Connects to a server.
    ///
    /// # Errors
    /// The system's; [`ErrorKind::TimedOut`] after `end`.
    pub fn begin(address: &SocketAddr, end: Instant) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(address, left(end)?)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, end })
    }

    /// Answers have to be there by `end` from now on.
    pub const fn until(&mut self, end: Instant) {
        self.end = end;
    }

    /// Sends a command with its request, and returns the answer, which has `N` bytes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`] for an answer of another size, [`ErrorKind::UnexpectedEof`] if the server
    /// closes the connection, [`ErrorKind::TimedOut`] after the deadline, and others of the system.
    pub fn ask<const N: usize>(&mut self, command: u8, request: &[u8]) -> io::Result<[u8; N]> {
        let size = (request.len() as u64).to_le_bytes();
        self.stream.set_write_timeout(Some(left(self.end)?))?;
        self.stream.write_all(&[&[command], &size[..], request].concat()).map_err(timed_out)?;
        let mut size = [0; 8];
        self.read(&mut size)?;
        if u64::from_le_bytes(size) != N as u64 {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut answer = [0; N];
        self.read(&mut answer)?;
        Ok(answer)
    }

    fn read(&mut self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            self.stream.set_read_timeout(Some(left(self.end)?))?;
            match self.stream.read(into).map_err(timed_out) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => into = &mut into[len..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The connection, which waits without a limit.
    ///
    /// # Errors
    /// The system's.
    pub fn into_stream(self) -> io::Result<TcpStream> {
        self.stream.set_read_timeout(None)?;
        self.stream.set_write_timeout(None)?;
        Ok(self.stream)
    }
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
    left.ok_or_else(|| ErrorKind::TimedOut.into())
}

/// A timeout of a socket is `WouldBlock` on some systems.
fn timed_out(error: io::Error) -> io::Error {
    if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut.into() } else { error }
}
