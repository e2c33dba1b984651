//! A worker's process, seen from its parent.

use super::ask::{Ask, MEMORY_MIB, Reply};
use super::error::{ChatTemplateError, Limit};
use super::worker::{self, ARGUMENT, SECONDS, read_frame, write_frame};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use terrace_platform::local_socket::{self, Stream};
use terrace_platform::process::{self, OUT_OF_TIME, Observed};

/// Time after which a worker that does not get its share of the machine is given up: many times what
/// it may compute.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20 * SECONDS);

/// Time after which a worker that computes nothing at all is given up: it is stopped, or hangs.
const STILL: Duration = Duration::from_secs(SECONDS);

/// Interval at which it is checked meanwhile.
const GLANCE: Duration = Duration::from_millis(500);

/// Longest error message, as JSON, in bytes; also more than any text has in front.
const MOST_ERROR: u64 = 1 << 20;

/// A worker.
#[derive(Debug)]
pub(super) struct Process {
    /// Locked only to ask whether it is alive.
    child: Mutex<Child>,
    socket: Stream,
}

impl Process {
    /// Starts a worker.
    ///
    /// # Errors
    /// [`ChatTemplateError::Process`].
    pub(super) fn start() -> Result<Self, ChatTemplateError> {
        let Some(program) = worker::program() else {
            let reason = "this program does not begin with `enter_chat_worker`, and names none that does";
            return Err(ChatTemplateError::Process(reason.into()));
        };
        Self::spawn(&program)
            .map_err(|error| ChatTemplateError::Process(format!("{}: {error}", program.display())))
    }

    fn spawn(program: &Path) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.arg(ARGUMENT).stdout(Stdio::null()).stderr(Stdio::null());
        // In a group of its own, Ctrl-C at the terminal does not end it.
        let (child, socket) = local_socket::spawn_connected(process::in_own_group(&mut command))?;
        Ok(Self { child: Mutex::new(child), socket })
    }

    /// Returns true if it still runs.
    pub(super) fn is_alive(&self) -> bool {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(child.try_wait(), Ok(None))
    }

    /// Returns true if it can be asked: it still runs, and nobody has stopped it.
    pub(super) fn is_usable(&self) -> bool {
        // A process that has ended and was not waited for keeps its number.
        self.is_alive() && self.observe().is_none_or(|seen| !seen.stopped)
    }

    /// Its state and the time that it has computed, as the system sees them.
    fn observe(&self) -> Option<Observed> {
        Observed::of(self.child.lock().unwrap_or_else(PoisonError::into_inner).id())
    }

    /// Has it do what is asked. After [`ChatTemplateError::Limit`] of time or memory, and after
    /// [`ChatTemplateError::Process`], it has ended.
    ///
    /// # Errors
    /// Its own [`ChatTemplateError`], or why it ended.
    pub(super) fn ask(&mut self, ask: &Ask<'_>) -> Result<String, ChatTemplateError> {
        match self.exchange(ask) {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(error)) => Err(error),
            Err(error) => Err(self.end(&error)),
        }
    }

    fn exchange(&mut self, ask: &Ask<'_>) -> io::Result<Result<String, ChatTemplateError>> {
        // It reads a request to its end before it does anything else.
        self.socket.set_write_timeout(Some(STILL))?;
        write_frame(&mut self.socket, ask)?;
        let mut reader = Patient { process: self, until: Instant::now() + ANSWER_TIMEOUT };
        read_answer(&mut reader)
    }

    /// Ends it after an exchange has failed, and says why that was.
    fn end(&mut self, error: &io::Error) -> ChatTemplateError {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        if is_late(error) {
            let _ = child.kill();
            let _ = child.wait();
            return ChatTemplateError::Limit(Limit::Time(SECONDS));
        }
        // If the socket has closed it is ending by itself, and the kernel knows why.
        if error.kind() == io::ErrorKind::InvalidData {
            let _ = child.kill();
        }
        match child.wait().map(|status| (status, process::ended_by_signal(status))) {
            Ok((_, Some(OUT_OF_TIME))) => ChatTemplateError::Limit(Limit::Time(SECONDS)),
            // No memory, or no stack: both abort.
            Ok((_, Some(_))) => ChatTemplateError::Limit(Limit::Memory(MEMORY_MIB)),
            Ok((status, None)) => ChatTemplateError::Process(format!("it ended with {status}")),
            Err(error) => ChatTemplateError::Process(error.to_string()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        // It holds nothing that would be lost. Both fail only if it has been waited for.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Reads a worker's answer.
///
/// # Errors
/// Those of `reader`, and [`io::ErrorKind::InvalidData`] if it is none.
pub(super) fn read_answer(reader: &mut impl Read) -> io::Result<Result<String, ChatTemplateError>> {
    let frame = read_frame(reader, MOST_ERROR)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    match serde_json::from_slice(&frame)? {
        Reply::Error(error) => Ok(Err(error)),
        Reply::Text(len) => {
            let mut text = String::new();
            let got = reader.take(len).read_to_string(&mut text)?;
            if got as u64 == len { Ok(Ok(text)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        }
    }
}

/// Returns whether nothing came in time, which is one error on Linux and the other on Windows.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Reads until a point in time, and for as long as the process computes.
struct Patient<'a> {
    process: &'a Process,
    until: Instant,
}

impl Read for Patient<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut socket = &self.process.socket;
        let (mut ticks, mut since) = (None, Instant::now());
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            socket.set_read_timeout(Some(left.min(GLANCE)))?;
            match socket.read(to) {
                Err(error) if is_late(&error) => {
                    let now = self.process.observe().map(|seen| seen.ticks);
                    if now != ticks {
                        (ticks, since) = (now, Instant::now());
                    } else if since.elapsed() >= STILL {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }
}
