//! The thread that listens and answers.

use crate::config::Limits;
use crate::connections::{Phase, answer};
use crate::tls::Tls;
use axum::Router;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be bound.
    #[error("cannot listen on {host}:{port}: {source}")]
    Listen {
        /// The host that was asked for.
        host: String,
        port: u16,
        /// The system's reason.
        source: io::Error,
    },
    /// The server's thread or its runtime cannot be started.
    #[error("cannot start the server: {0}")]
    Start(
        /// The system's reason.
        io::Error,
    ),
}

/// Maximum number of threads that read fields and tokenise: computing needs the CPU more.
const READERS: usize = 2;

/// Time that such a thread waits for work: longer than any process lives.
const FOR_EVER: Duration = Duration::from_secs(1 << 32);

/// A bound address.
pub struct Listening {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listening {
    /// Binds an address.
    ///
    /// # Errors
    /// There is no such address, or another program uses it.
    pub fn start(host: &str, port: u16) -> Result<Self, ServerError> {
        let bound = || {
            let socket = TcpListener::bind((host, port))?;
            socket.set_nonblocking(true)?;
            let address = socket.local_addr()?;
            Ok(Self { socket, address })
        };
        bound().map_err(|source: io::Error| {
            let source = if source.kind() == io::ErrorKind::AddrInUse {
                io::Error::new(source.kind(), "the address is already in use")
            } else {
                source
            };
            ServerError::Listen { host: host.to_owned(), port, source }
        })
    }

    /// Takes a socket that listens, from the process that bound it.
    ///
    /// # Errors
    /// It is no such socket.
    pub fn of(socket: TcpListener) -> Result<Self, ServerError> {
        let taken = || {
            socket.set_nonblocking(true)?;
            socket.local_addr()
        };
        let address = taken().map_err(ServerError::Start)?;
        Ok(Self { socket, address })
    }

    /// Gives the socket away, for another process.
    pub fn into_socket(self) -> TcpListener {
        self.socket
    }

    /// The address with its port.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A running server.
pub struct Server {
    thread: JoinHandle<()>,
    phase: watch::Sender<Phase>,
    /// Disconnected when the thread drops the sender at its end.
    ended: Receiver<()>,
}

impl Server {
    /// Starts to answer, only over TLS if `tls` is given. `on_end` is called on the server's thread when that ends, also by a panic.
    ///
    /// # Errors
    /// The thread or its runtime cannot be started.
    pub fn start(
        listening: Listening,
        router: Router,
        limits: Limits,
        tls: Option<Arc<Tls>>,
        on_end: impl FnOnce() + Send + 'static,
    ) -> Result<Self, ServerError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(READERS)
            .thread_keep_alive(FOR_EVER)
            .thread_name("terrace-read")
            .build()
            .map_err(ServerError::Start)?;
        // A request that finds no thread, because the system has no more, would end in a panic. One that is
        // there from the beginning, and stays, is always found.
        std::thread::Builder::new().spawn(|| ()).map(drop).map_err(ServerError::Start)?;
        drop(runtime.spawn_blocking(|| ()));
        let (phase, seen) = watch::channel(Phase::Open);
        let (alive, ended) = channel();
        let run = move || {
            // Dropped last, even on a panic.
            let _alive = (WhenEnded(Some(on_end)), alive);
            if let Err(error) = runtime.block_on(answer(listening.socket, router, limits, tls, seen)) {
                tracing::error!("the server ended: {error}");
            }
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("terrace-http".into()).spawn(run);
        Ok(Self { thread: thread.map_err(ServerError::Start)?, phase, ended })
    }

    /// Returns true if the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Accepts no more requests, and waits until all are answered, at most for `patience`.
    pub fn drain(&self, patience: Duration) {
        self.phase.send_replace(Phase::Draining);
        self.wait(patience);
    }

    /// Ends the server once all answers are sent, or after `patience`.
    pub fn end(self, patience: Duration) {
        self.wait(patience);
        self.phase.send_replace(Phase::Closed);
        // The panic hook has printed the message of a panic.
        let _ = self.thread.join();
    }

    fn wait(&self, patience: Duration) {
        match self.ended.recv_timeout(patience) {
            Ok(()) | Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {}
        }
    }
}

/// Calls a function when dropped.
struct WhenEnded<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for WhenEnded<F> {
    fn drop(&mut self) {
        if let Some(on_end) = self.0.take() {
            on_end();
        }
    }
}
