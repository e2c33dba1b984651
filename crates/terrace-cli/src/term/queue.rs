//! A bounded queue of messages, which one thread writes: whoever adds a message never waits for its
//! reader.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;
use terrace_platform::output::Output;

/// Bytes of messages that may wait; further ones are dropped.
const CAPACITY: usize = 1 << 20;
/// Pause before a full stderr that does not block is tried again.
const FULL: Duration = Duration::from_millis(10);

/// Messages that wait to be written.
#[derive(Default)]
pub struct Queue {
    waiting: Mutex<Waiting>,
    /// Notified when a message was added, or all of them were written.
    changed: Condvar,
    /// Number of messages that found no room, or could not be written.
    dropped: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
    /// True if the thread is writing messages that it has taken.
    writing: bool,
}

impl Queue {
    /// Adds a message; drops and counts it if there is no room.
    pub fn push(&self, message: &[u8]) {
        let mut waiting = self.waiting();
        if waiting.bytes + message.len() > CAPACITY {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes += message.len();
        waiting.messages.push_back(message.to_vec());
        self.changed.notify_all();
    }

    /// Number of messages that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until all messages have been written, for at most this long.
    pub fn flush(&self, limit: Duration) {
        let busy = |waiting: &mut Waiting| waiting.writing || !waiting.messages.is_empty();
        drop(self.changed.wait_timeout_while(self.waiting(), limit, busy));
    }

    /// Writes messages for as long as the process lives. After messages were dropped, and as soon as one is
    /// written again, calls `report` with their number since the last report; it may add a message.
    pub fn write(&self, to: Output<'_>, report: impl Fn(u64)) -> ! {
        let (mut reported, mut moves) = (0, true);
        loop {
            let mut waiting = self.waiting();
            waiting.writing = false;
            self.changed.notify_all();
            while waiting.messages.is_empty() && !(moves && self.dropped() > reported) {
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }
            let Waiting { messages, .. } = std::mem::take(&mut *waiting);
            waiting.writing = true;
            drop(waiting);
            // The queue is empty now, so there is room for the report: behind the messages that came before
            // the gap, and before those that come after it.
            let dropped = self.dropped();
            if moves && dropped > reported {
                report(dropped - reported);
                reported = dropped;
            }
            for message in messages {
                moves = write_all(to, &message).is_ok();
                if !moves {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes all of a message, however long its reader takes.
///
/// # Errors
/// It cannot be written.
pub fn write_all(to: Output<'_>, mut message: &[u8]) -> io::Result<()> {
    while !message.is_empty() {
        match to.write(message) {
            Ok(written) => message = &message[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // Another program has set this for all who share the file.
            Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(FULL),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, pipe};
    use std::sync::Arc;

    /// A queue whose thread writes into a pipe.
    fn started() -> (Arc<Queue>, std::io::PipeReader) {
        let (reader, writer) = pipe().unwrap();
        let queue = Arc::new(Queue::default());
        let of_thread = Arc::clone(&queue);
        std::thread::spawn(move || {
            of_thread.write(Output::of(&writer), |dropped| {
                of_thread.push(format!("{dropped} dropped\n").as_bytes());
            })
        });
        (queue, reader)
    }

    #[test]
    fn messages_keep_their_order_and_a_flush_waits_for_them() {
        let (queue, mut reader) = started();
        (0..1000).for_each(|n| queue.push(format!("{n:03}\n").as_bytes()));
        queue.flush(Duration::from_secs(60));
        let mut text = [0; 4000];
        reader.read_exact(&mut text).unwrap();
        let expected: String = (0..1000).map(|n| format!("{n:03}\n")).collect();
        assert_eq!(text, expected.as_bytes());
        assert_eq!(queue.dropped(), 0);
    }

    #[test]
    fn a_reader_that_stops_costs_messages_and_later_reads_how_many() {
        let (queue, reader) = started();
        let message = [&[b'x'; 999][..], b"\n"].concat();
        let sent = 3000;
        (0..sent).for_each(|_| queue.push(&message));
        queue.flush(Duration::from_millis(10));
        let dropped = queue.dropped();
        assert!(dropped > 0 && dropped < sent, "{dropped}");
        let (mut read, mut told) = (0, 0);
        for line in BufReader::new(reader).lines() {
            match line.unwrap().strip_suffix(" dropped") {
                Some(number) => told += number.parse::<u64>().unwrap(),
                None => read += 1,
            }
            // There may be several gaps.
            if told == dropped {
                break;
            }
        }
        assert_eq!(told, dropped);
        assert!(read + dropped <= sent, "{read} {dropped}");
        queue.flush(Duration::from_secs(60));
    }

    #[test]
    fn what_cannot_be_written_is_counted_once() {
        let (queue, reader) = started();
        drop(reader);
        (0..10).for_each(|_| queue.push(b"lost\n"));
        queue.flush(Duration::from_secs(60));
        assert_eq!(queue.dropped(), 10);
    }
}
