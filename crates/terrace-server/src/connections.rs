//! Connections: accepted up to a maximum number, served, and closed if their client keeps the
//! server waiting.

use crate::config::Limits;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_io_timeout::TimeoutStream;

/// Maximum size of a connection's buffers in bytes, and thus of a request's head.
const BUFFER: usize = 64 << 10;
/// Pause after the system cannot provide a connection, for example because too many files are open.
const BREATH: Duration = Duration::from_secs(1);

/// The phase of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum Phase {
    /// It accepts requests.
    Open,
    /// It answers the requests that it has, and accepts no others.
    Draining,
    /// It ends now.
    Closed,
}

/// Accepts and serves connections until `phase` ends that.
///
/// # Errors
/// The system's error about the socket.
pub async fn answer(
    socket: TcpListener,
    router: Router,
    limits: Limits,
    phase: watch::Receiver<Phase>,
) -> io::Result<()> {
    let socket = tokio::net::TcpListener::from_std(socket)?;
    let reached = |wanted: Phase| {
        let mut phase = phase.clone();
        async move {
            // An error means that the sender is gone.
            let _ = phase.wait_for(|phase| *phase >= wanted).await;
        }
    };
    let places = Arc::new(Semaphore::new(limits.connections));
    let open = GracefulShutdown::new();
    let accepting = async {
        loop {
            let (stream, place) = accept(&socket, &places).await;
            let answered = open.watch(http(limits).serve_connection(
                TokioIo::new(impatient(stream, limits.write)),
                TowerToHyperService::new(router.clone()),
            ));
            tokio::spawn(async move {
                // A connection ends early because of its client, which can no longer be told.
                if let Err(error) = answered.await {
                    tracing::debug!("a connection ended early: {error}");
                }
                drop(place);
            });
        }
    };
    tokio::select! {
        () = accepting => {}
        () = reached(Phase::Draining) => {}
    }
    drop(socket);
    tokio::select! {
        () = open.shutdown() => {}
        () = reached(Phase::Closed) => {}
    }
    Ok(())
}

/// The settings of HTTP.
fn http(limits: Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    // The timeout starts with the connection and again after each answer, so it limits idle time
    // too.
    http.timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(BUFFER);
    http
}

/// Accepts the next connection when there is room for it; until then it waits in the system's
/// queue.
async fn accept(
    socket: &tokio::net::TcpListener,
    places: &Arc<Semaphore>,
) -> (TcpStream, OwnedSemaphorePermit) {
    let place = Arc::clone(places).acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match socket.accept().await {
            Ok((stream, _)) => {
                // A token is a small packet that must not wait for the next one. An error does not
                // matter.
                let _ = stream.set_nodelay(true);
                return (stream, place);
            }
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                tracing::error!("no connection can be accepted: {error}");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

/// Whether the error concerns only the connection that was to be accepted, rather than the server.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// A connection that fails if its client reads nothing of what is sent for this long.
fn impatient(stream: TcpStream, patience: Duration) -> std::pin::Pin<Box<TimeoutStream<TcpStream>>> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(patience));
    Box::pin(stream)
}
