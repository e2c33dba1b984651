//! Connections: accepted up to a maximum number, served, and closed if their client keeps the
//! server waiting.

use crate::api::errors::in_form;
use crate::config::Limits;
use crate::error::ApiError;
use crate::stream::{self, Shared};
use crate::tls::Tls;
use axum::Router;
use axum::http::header;
use axum::middleware::from_fn;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use std::error::Error;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use terrace_platform::open_files::is_numbered_from;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::timeout;
use tokio_io_timeout::TimeoutStream;

/// Maximum size of a connection's buffers in bytes, and thus of a request's head.
const BUFFER: usize = 64 << 10;
/// Pause after the system cannot provide a connection, for example because too many files are open.
const BREATH: Duration = Duration::from_secs(1);
/// Time that a connection beyond the maximum number waits for a place. A client that has just closed
/// another connection finds its place.
const WAIT: Duration = Duration::from_secs(1);
/// Time that such a connection then has for its request, which is refused.
const LAST: Duration = Duration::from_secs(3);
/// Maximum number of connections that wait so; further ones wait in the system's queue.
const DOOR: usize = 128;
/// The part of all open files that such connections may be.
const DOOR_PART: usize = 8;
/// Open files that are kept for what requests need, beside those of such connections.
const OWN_FILES: usize = 16;
/// Size of that queue.
const BACKLOG: i32 = 1024;

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
    tls: Option<Arc<Tls>>,
    phase: watch::Receiver<Phase>,
) -> io::Result<()> {
    // Many clients may connect at once.
    SockRef::from(&socket).listen(BACKLOG)?;
    let socket = tokio::net::TcpListener::from_std(socket)?;
    let reached = |wanted: Phase| {
        let mut phase = phase.clone();
        async move {
            // An error means that the sender is gone.
            let _ = phase.wait_for(|phase| *phase >= wanted).await;
        }
    };
    let places = Arc::new(Semaphore::new(limits.connections));
    let at_most = DOOR.min(limits.files / DOOR_PART).max(1);
    let door = Arc::new(Semaphore::new(at_most));
    let scarce = limits.files.saturating_sub(at_most + OWN_FILES);
    // Told when a connection has ended.
    let freed = Arc::new(Notify::new());
    let open = GracefulShutdown::new();
    let accepting = async {
        loop {
            let at_door = Arc::clone(&door).acquire_owned().await.expect("the semaphore is never closed");
            let stream = accept(&socket, &freed).await;
            let (places, router, watcher) = (Arc::clone(&places), router.clone(), open.watcher());
            let (tls, freed) = (tls.clone(), WhenFreed(Arc::clone(&freed)));
            // The system gives the lowest number that is free.
            let few = is_numbered_from(&stream, scarce);
            tokio::spawn(async move {
                let _freed = freed;
                let place =
                    async { if few { None } else { timeout(WAIT, places.acquire_owned()).await.ok() } };
                match place.await {
                    Some(place) => {
                        drop(at_door);
                        serve(stream, router, limits, tls, watcher).await;
                        drop(place);
                    }
                    None => {
                        let brief = Limits { idle: limits.idle.min(LAST), ..limits };
                        serve(stream, crowded(), brief, tls, watcher).await;
                    }
                }
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

/// Tells of the end of a connection when dropped, after the connection itself.
struct WhenFreed(Arc<Notify>);

impl Drop for WhenFreed {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Refuses the first request of a connection, and closes it.
fn crowded() -> Router {
    Router::new()
        .fallback(async || ([(header::CONNECTION, "close")], ApiError::crowded()))
        .layer(from_fn(in_form))
}

/// Serves a connection until it ends or its client has left.
async fn serve(stream: TcpStream, router: Router, limits: Limits, tls: Option<Arc<Tls>>, watcher: Watcher) {
    stream::prepare(&stream, limits);
    let stream = Arc::new(stream);
    let plain = Shared(Arc::clone(&stream));
    let answered = async {
        let stream: Box<dyn Both> = match tls {
            None => Box::new(plain),
            Some(tls) => Box::new(timeout(limits.idle, tls.acceptor().accept(plain)).await??),
        };
        let io = TokioIo::new(impatient(stream, limits.write));
        let answered = http(limits).serve_connection(io, TowerToHyperService::new(router));
        watcher.watch(answered).await.map_err(Box::<dyn Error + Send + Sync>::from)
    };
    tokio::select! {
        // First, what can be answered at once.
        biased;
        answered = answered => {
            // A connection ends early because of its client, which can no longer be told.
            if let Err(error) = answered {
                tracing::debug!("a connection ended early: {error}");
            }
        }
        () = stream::left(&stream) => tracing::debug!("a client disconnected before its response"),
    }
}

/// A stream in both directions, secured or not.
trait Both: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Both for S {}

/// The settings of HTTP.
fn http(limits: Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    // The timeout starts with the connection and again after each answer, so it limits idle time
    // too.
    http.timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(BUFFER);
    http
}

/// Accepts the next connection.
async fn accept(socket: &tokio::net::TcpListener, freed: &Notify) -> TcpStream {
    let mut said = false;
    loop {
        match socket.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                if !said {
                    tracing::error!("no connection can be accepted: {error}");
                    said = true;
                }
                let _ = timeout(BREATH, freed.notified()).await;
            }
        }
    }
}

/// Returns true if the error concerns only the connection that was to be accepted, rather than the server.
fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// A connection that fails if its client reads nothing of what is sent for this long.
fn impatient(stream: Box<dyn Both>, patience: Duration) -> Pin<Box<TimeoutStream<Box<dyn Both>>>> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(patience));
    Box::pin(stream)
}
