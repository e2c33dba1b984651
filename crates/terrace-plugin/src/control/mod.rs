//! The socket at which `terrace attach` finds this process: only its user can reach it. Each line is a
//! request in JSON, and gets a line as its answer.
//!
//! Whatever comes in, the program goes on: lines, connections and waits have limits, and nothing here
//! runs on the program's threads.

mod line;
mod requests;
mod socket;

use crate::models::Models;
use crate::report::say;
use crate::settings::Control;
use line::{ControlLine, Lines};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use terrace_platform::local_socket::{Listener, Stream};
use terrace_platform::process::block_signals;

pub use socket::Socket;

/// Connections at a time; what comes beyond is told so and closed.
const MAX_CONNECTIONS: usize = 8;
/// Time for a request to come, since the connection or the last answer, and for an answer to be taken.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The socket of this process, while there is one.
static SOCKET: OnceLock<Option<Socket>> = OnceLock::new();

/// Listens from now on, if it does not yet. What keeps it from that is told the user.
pub fn listen(models: &Arc<Models>, control: &Control) {
    SOCKET.get_or_init(|| {
        let (socket, listener) = match Socket::bind(control) {
            Ok(Some(bound)) => bound,
            Ok(None) => return None,
            Err(error) => {
                say(format_args!("`terrace attach` cannot reach this process: {error}"));
                return None;
            }
        };
        let models = Arc::clone(models);
        let started = std::thread::Builder::new().name("terrace-control".into()).spawn(move || {
            // The program's signals are its own threads'; and a client that went away is none of
            // its business.
            block_signals();
            accept(&listener, &models);
        });
        match started {
            Ok(_) => Some(socket),
            Err(error) => {
                say(format_args!("`terrace attach` cannot reach this process: {error}"));
                socket.remove();
                None
            }
        }
    });
}

/// Removes the socket's file. For the end of the process.
pub fn end() {
    if let Some(Some(socket)) = SOCKET.get() {
        socket.remove();
    }
}

fn accept(listener: &Listener, models: &Arc<Models>) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // No descriptors are left, or the client has gone already.
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let (models, count) = (Arc::clone(models), Arc::clone(&open));
        let connection = Connection::new(stream, count);
        // If there is no thread, the connection is closed.
        let _ = std::thread::Builder::new()
            .name("terrace-client".into())
            .spawn(move || connection.serve(&models));
    }
}

/// A connection, counted while it lasts.
struct Connection {
    stream: Stream,
    open: Arc<AtomicUsize>,
    /// Connections when it came.
    others: usize,
}

impl Connection {
    fn new(stream: Stream, open: Arc<AtomicUsize>) -> Self {
        let others = open.fetch_add(1, Ordering::Relaxed);
        Self { stream, open, others }
    }

    fn serve(&self, models: &Models) {
        let refused = if self.others >= MAX_CONNECTIONS {
            Some(format!("{MAX_CONNECTIONS} others are connected already"))
        } else {
            socket::check_peer(&self.stream).err()
        };
        let limits = self.stream.set_write_timeout(Some(REQUEST_TIMEOUT));
        if let Some(reason) = refused {
            let _ = self.answer(&requests::failed(&reason));
            return;
        }
        let mut lines = Lines::new(&self.stream, REQUEST_TIMEOUT);
        while limits.is_ok() {
            let answer = match lines.next() {
                ControlLine::Whole(line) => requests::answer(&line, models),
                ControlLine::TooLong => {
                    let _ = self.answer(&requests::failed("the line is too long"));
                    return;
                }
                ControlLine::End => return,
            };
            if self.answer(&answer).is_err() {
                return;
            }
        }
    }

    fn answer(&self, answer: &serde_json::Value) -> std::io::Result<()> {
        (&self.stream).write_all(format!("{answer}\n").as_bytes())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
