//! The arriving parts of a response.
//!
//! A blocking read cannot be interrupted, so each request is a thread of its own that hands over
//! what arrives; whoever takes it looks for Ctrl-C meanwhile.

use std::io::Read;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use ureq::http::{Request, response};
use ureq::{Agent, Body};

/// Time until a connection must stand.
pub const CONNECT: Duration = Duration::from_secs(30);
/// Interval at which waits check for Ctrl-C.
pub const INTERRUPT_CHECK: Duration = Duration::from_millis(50);
/// Most bytes that are handed over at once.
const CHUNK: usize = 128 << 10;
/// Chunks that wait to be taken.
const CHUNKS_AHEAD: usize = 8;

/// Ctrl-C was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted;

/// Why there is no answer, or no more of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoAnswer {
    /// Nobody waits for it any more.
    Interrupted,
    /// No connection came about.
    Unreachable(String),
    /// A connection came about, and broke.
    Broken(String),
}

impl From<Interrupted> for NoAnswer {
    fn from(_: Interrupted) -> Self {
        Self::Interrupted
    }
}

/// A part of an answer.
pub enum HttpPart {
    /// Status and headers, first and once.
    Head(Box<response::Parts>),
    /// The next bytes of the body.
    Bytes(Vec<u8>),
    /// Why nothing follows.
    Failed(NoAnswer),
}

/// The rest of a response.
pub struct Arriving {
    parts: Receiver<HttpPart>,
    interrupted: fn() -> bool,
}

impl Arriving {
    /// Sends a request. Its waits end when `interrupted` says so; the thread then ends with its
    /// connection.
    ///
    /// # Errors
    /// [`NoAnswer::Unreachable`]: no thread.
    pub fn start(agent: &Agent, request: Request<()>, interrupted: fn() -> bool) -> Result<Self, NoAnswer> {
        let (sender, parts) = sync_channel(CHUNKS_AHEAD);
        let agent = agent.clone();
        let work = move || bring(&agent, request, &sender);
        let thread = std::thread::Builder::new().name("terrace-http".into()).spawn(work);
        thread.map_err(|e| NoAnswer::Unreachable(e.to_string()))?;
        Ok(Self { parts, interrupted })
    }

    /// The next part; `None` means that the answer has ended.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn next(&mut self) -> Result<Option<HttpPart>, NoAnswer> {
        loop {
            if (self.interrupted)() {
                return Err(NoAnswer::Interrupted);
            }
            match self.parts.recv_timeout(INTERRUPT_CHECK) {
                Ok(HttpPart::Failed(reason)) => return Err(reason),
                Ok(part) => return Ok(Some(part)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }
}

/// A request's thread: ends with the body, with its connection, or when its parts are wanted no
/// more.
fn bring(agent: &Agent, request: Request<()>, parts: &SyncSender<HttpPart>) {
    let answer = match agent.run(request) {
        Ok(answer) => answer,
        Err(error) => {
            let _ = parts.send(HttpPart::Failed(failure(error)));
            return;
        }
    };
    let (head, body) = answer.into_parts();
    if parts.send(HttpPart::Head(Box::new(head))).is_ok() {
        bring_body(body, parts);
    }
}

fn bring_body(body: Body, parts: &SyncSender<HttpPart>) {
    let mut reader = body.into_reader();
    loop {
        let mut bytes = vec![0; CHUNK];
        let part = match reader.read(&mut bytes) {
            Ok(0) => return,
            Ok(n) => {
                bytes.truncate(n);
                HttpPart::Bytes(bytes)
            }
            Err(error) => HttpPart::Failed(failure(error.into())),
        };
        let last = matches!(part, HttpPart::Failed(_));
        if parts.send(part).is_err() || last {
            return;
        }
    }
}

fn failure(error: ureq::Error) -> NoAnswer {
    use std::io::ErrorKind as Kind;
    use ureq::{Error, Timeout};
    match error {
        Error::Io(error) => match error.kind() {
            Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe | Kind::UnexpectedEof => {
                NoAnswer::Broken(error.to_string())
            }
            _ => NoAnswer::Unreachable(error.to_string()),
        },
        Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
            NoAnswer::Unreachable(format!("no connection within {} seconds", CONNECT.as_secs()))
        }
        Error::Timeout(_) => NoAnswer::Broken("nothing arrived for too long".into()),
        Error::Protocol(error) => NoAnswer::Broken(error.to_string()),
        error => NoAnswer::Unreachable(error.to_string()),
    }
}
