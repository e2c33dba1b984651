//! Clients of a server: when one has left.

use super::call::size;
use std::io;
use std::os::windows::io::AsRawSocket;
use std::time::Duration;
use tokio::net::TcpStream;
use windows_sys::Win32::Networking::WinSock::{IPPROTO_TCP, TCP_MAXRT, setsockopt};

/// Ends the connection if what was sent is not confirmed for this long, in whole seconds.
///
/// # Errors
/// The system's.
pub fn give_up_after(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    let seconds = u32::try_from(patience.as_secs()).unwrap_or(u32::MAX);
    let (socket, value) = (stream.as_raw_socket() as usize, (&raw const seconds).cast());
    // SAFETY: an open socket, and a number of that size.
    match unsafe { setsockopt(socket, IPPROTO_TCP, TCP_MAXRT, value, size::<u32>().cast_signed()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits for ever: the system does not tell of an end after what is still to be read.
pub async fn left(_: &TcpStream) {
    std::future::pending().await
}
