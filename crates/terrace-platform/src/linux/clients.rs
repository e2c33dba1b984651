//! Clients of a server: when one has left.

use std::io;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Ends the connection if what was sent is not confirmed for this long.
///
/// # Errors
/// The system's.
pub fn give_up_after(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    let millis = u32::try_from(patience.as_millis()).unwrap_or(u32::MAX);
    Ok(rustix::net::sockopt::set_tcp_user_timeout(stream, millis)?)
}

/// Waits until the client has ended or reset its side of the connection, even if something that it sent before that is
/// still to be read. Where the system does not tell that, it waits for ever.
pub async fn left(stream: &TcpStream) {
    // Priority stands for the end alone: urgent data is not asked for.
    while let Ok(ready) = stream.ready(Interest::PRIORITY).await
        && !ready.is_read_closed()
    {
        let _ = stream.try_io(Interest::PRIORITY, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
    }
}
