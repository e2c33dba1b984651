//! Messages to stderr: of the log, warnings and errors. None of them can fail, since there is nowhere to
//! report that.
//!
//! A command writes a message where it occurs and waits for its reader, as programs do. A server must
//! not: [`start_queue`] gives messages to a thread, and those that find no room are counted.

use super::queue::{Queue, write_all};
use super::width;
use std::fmt::Arguments;
use std::io::{self, Write};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use terrace_platform::output::stderr;

/// Time that messages have to be written when the process ends.
const FLUSH: Duration = Duration::from_secs(1);

/// The queue, once there is one.
static QUEUE: OnceLock<Queue> = OnceLock::new();
/// Keeps messages that are written directly apart.
static DIRECT: Mutex<()> = Mutex::new(());

/// Prints a message on stderr, formatted as by `format!`, with a line end.
#[macro_export]
macro_rules! say {
    ($($format:tt)*) => {
        $crate::term::messages::print_line(format_args!($($format)*))
    };
}
/// Prints a message with a line end, unless it has one or is empty.
pub fn print_line(message: Arguments<'_>) {
    let mut text = message.to_string();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    print(width::for_stderr(&text).as_bytes());
}

fn print(message: &[u8]) {
    if let Some(queue) = QUEUE.get() {
        queue.push(message);
    } else {
        let _one = DIRECT.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = write_all(stderr(), message);
    }
}

/// Gives messages to a thread from now on. Without a thread they are still written directly.
pub fn start_queue() {
    let report = |dropped| {
        tracing::warn!(
            dropped,
            "log lines were dropped: they could not be written, or nothing read them in time"
        );
    };
    let write = move || QUEUE.get_or_init(Queue::default).write(stderr(), report);
    if std::thread::Builder::new().name("terrace-log".into()).spawn(write).is_ok() {
        QUEUE.get_or_init(Queue::default);
    }
}

/// Number of messages of the queue that were dropped.
pub fn dropped() -> u64 {
    QUEUE.get().map_or(0, Queue::dropped)
}

/// Waits a little for messages in the queue. Call before the process ends.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(FLUSH);
    }
}

/// The log, as a writer of one message at a time.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    /// Messages are for people: wide ones are broken at a terminal.
    pub wraps: bool,
}

impl Write for Log {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(message) {
            Ok(text) if self.wraps => print(width::for_stderr(text).as_bytes()),
            _ => print(message),
        }
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
