//! Lines of a client, with limits on their length and on the time that they take.

use std::io::Read;
use std::time::{Duration, Instant};
use terrace_platform::local_socket::Stream;

/// Bytes of a line: a learn file's, without times, of the largest models.
pub const LONGEST: usize = 4 << 20;

/// The next line.
#[derive(Debug, PartialEq, Eq)]
pub enum ControlLine {
    /// A line, without its end.
    Whole(Vec<u8>),
    /// More bytes than a line may have.
    TooLong,
    /// The client is gone, or takes too long.
    End,
}

/// The lines of a connection.
pub struct Lines<'a> {
    stream: &'a Stream,
    patience: Duration,
    /// Bytes after the last line.
    bytes: Vec<u8>,
}

impl<'a> Lines<'a> {
    /// Reads lines, each of which must come within this time.
    pub fn new(stream: &'a Stream, patience: Duration) -> Self {
        Self { stream, patience, bytes: Vec::new() }
    }

    /// Waits for the next line.
    pub fn next(&mut self) -> ControlLine {
        let until = Instant::now() + self.patience;
        let mut searched = 0;
        loop {
            if let Some(end) = self.bytes[searched..].iter().position(|&byte| byte == b'\n') {
                let mut line: Vec<u8> = self.bytes.drain(..=searched + end).collect();
                line.pop();
                return ControlLine::Whole(line);
            }
            searched = self.bytes.len();
            if searched > LONGEST {
                return ControlLine::TooLong;
            }
            // A client that sends byte by byte gets no more time than others.
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stream.set_read_timeout(Some(left)).is_err() {
                return ControlLine::End;
            }
            let mut part = [0; 4096];
            match self.stream.read(&mut part) {
                Ok(0) => return ControlLine::End,
                Ok(n) => self.bytes.extend_from_slice(&part[..n]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return ControlLine::End,
            }
        }
    }
}
