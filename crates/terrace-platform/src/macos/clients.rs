//! Clients of a server: when one has left.

use std::ffi::c_int;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;
use tokio::net::TcpStream;

/// Of netinet/tcp.h: seconds after which a connection ends whose data is not confirmed.
const TCP_RXT_CONNDROPTIME: c_int = 0x80;

/// Ends the connection if what was sent is not confirmed for this long, in whole seconds.
///
/// # Errors
/// The system's.
pub fn give_up_after(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    let seconds = c_int::try_from(patience.as_secs()).unwrap_or(c_int::MAX);
    let (value, len) = ((&raw const seconds).cast(), size_of::<c_int>() as libc::socklen_t);
    // SAFETY: an open socket, and a number of that size.
    match unsafe { libc::setsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, TCP_RXT_CONNDROPTIME, value, len) }
    {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits for ever: tokio does not tell of an end after what is still to be read.
pub async fn left(_: &TcpStream) {
    std::future::pending().await
}
