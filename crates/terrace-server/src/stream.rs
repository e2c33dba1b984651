//! The stream of a connection, beside which its client can be watched.

use crate::config::Limits;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use terrace_platform::clients::{self, give_up_after};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Time between two probes of a client that has sent nothing for the write timeout, and their
/// number.
const BETWEEN_PROBES: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;
/// Maximum time before the first probe in seconds, which is the system's.
const MOST_SECONDS: u64 = 32_767;

/// Sets the options of a connection. An error does not matter: the client has left.
pub fn prepare(stream: &TcpStream, limits: Limits) {
    // A token is a small packet that must not wait for the next one.
    let _ = stream.set_nodelay(true);
    // A client whose machine or network is gone sends nothing, not even an end.
    let patience = Duration::from_secs(limits.write.as_secs().clamp(1, MOST_SECONDS));
    let probes = TcpKeepalive::new().with_time(patience).with_interval(BETWEEN_PROBES).with_retries(PROBES);
    let socket = SockRef::from(stream);
    let _ = socket.set_tcp_keepalive(&probes);
    let _ = give_up_after(stream, patience);
}

/// Waits until the client has ended or reset its side of the connection, even if something that it
/// sent before that is still to be read.
///
/// hyper notices that only if it has read everything, and it reads nothing while it answers a
/// request after which the client has sent more.
pub async fn left(stream: &TcpStream) {
    clients::left(stream).await;
}

/// A stream that is shared with [`left`].
pub struct Shared(pub Arc<TcpStream>);

impl AsyncRead for Shared {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => {
                    buffer.advance(read?);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }
}

impl AsyncWrite for Shared {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write_vectored(parts) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}
