//! The table of requests in flight. It owns all memory that the kernel may write to until the
//! request has been reported.

use crate::block::BlockId;
use crate::buffers::{IoBuf, Target};
use crate::limits::QueueDepth;
use crate::purpose::Purpose;
use crate::ranges::Place;
use crate::rows::RowTable;
use crate::slots::Failure;
use std::time::Instant;
use terrace_platform::errors;

/// Maximum number of temporary refusals of a request in a row.
const MAX_REFUSALS: u32 = 1000;
/// A disk that has less than one in this many of its requests left is about to idle.
const NEARLY_IDLE: usize = 8;

/// The purpose of a request.
#[derive(Debug)]
pub(crate) enum Owner {
    /// A part of a block.
    Block(BlockId),
    /// A part of the `read`-th read of a `read_into`, through `stage`, or if that is `None`,
    /// directly into the caller's memory.
    Caller { read: usize, len: u64, stage: Option<Stage> },
    /// A part of a span of rows, read to `place` in the memory for these.
    Rows { table: RowTable, span: u64, place: Place },
}

/// A detour through aligned memory.
#[derive(Debug)]
pub(crate) struct Stage {
    pub place: Place,
    /// True if `place` is in the bounce buffer instead of the arena.
    pub bounce: bool,
    /// Bytes before the requested ones.
    pub skip: usize,
    pub dst: Target,
}

impl Owner {
    /// Returns the block, if the request is for one.
    pub const fn block(&self) -> Option<BlockId> {
        match self {
            Self::Block(block) => Some(*block),
            Self::Caller { .. } | Self::Rows { .. } => None,
        }
    }
}

/// One request.
#[derive(Debug)]
pub(crate) struct Flight {
    pub owner: Owner,
    /// Why it was sent.
    pub purpose: Purpose,
    /// When it was sent, if a timeline is recorded.
    pub sent: Option<Instant>,
    pub file: u32,
    /// The copy of the file that it reads.
    pub copy: u8,
    /// Copies that it does not read, as bits: those that failed, and those ruled out.
    pub avoid: u64,
    /// Why the file's original failed, if it did.
    pub failure: Option<Failure>,
    /// Offset of the window in the file.
    pub offset: u64,
    pub buf: IoBuf,
    /// Bytes from the start of the window that must arrive; the rest may lie past the end of the
    /// file.
    pub need: usize,
    /// Bytes that have arrived so far.
    pub came: u64,
    /// Offset in the window of the current request: short reads are continued.
    pub from: usize,
    /// Number of temporary refusals of the request in a row.
    pub refusals: u32,
}

/// The meaning of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All needed bytes have arrived.
    Done,
    /// Send the request again, from this byte of the window on.
    Again { from: usize },
    /// The bytes will not arrive.
    Failed(Failure),
}

impl Flight {
    /// Interprets a result; `align` is the alignment of offsets.
    pub fn judge(&mut self, result: i32, align: usize) -> Verdict {
        let Ok(bytes) = usize::try_from(result) else {
            let errno = result.checked_neg().unwrap_or(i32::MAX);
            if errors::is_passing(errno) && self.refusals < MAX_REFUSALS {
                self.refusals += 1;
                return Verdict::Again { from: self.from };
            }
            return Verdict::Failed(Failure::Os(errno));
        };
        self.refusals = 0;
        let arrived = self.from.saturating_add(bytes);
        if arrived > self.buf.target().len {
            // More than there is room for: whatever it read, these are not the bytes.
            return Verdict::Failed(Failure::Os(errors::INPUT_OUTPUT));
        }
        if arrived >= self.need {
            return Verdict::Done;
        }
        // A direct read only ends unaligned at the end of the file.
        let from = arrived - arrived % align;
        if from <= self.from {
            return Verdict::Failed(Failure::Eof { end: self.offset + arrived as u64 });
        }
        Verdict::Again { from }
    }
}

/// Requests by tag.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    table: Vec<Option<Flight>>,
    free: Vec<u32>,
    /// Number of requests that may be in flight while the consumer waits for them.
    usual: usize,
    /// Number that may be in flight when the consumer goes on computing, at most as many as the table holds.
    deeper: usize,
    /// True if the consumer goes on computing.
    leaves: bool,
    /// True if it last did so with as many in flight as may be.
    left_full: bool,
    /// Number and bytes of background requests, for which nothing waited when they were sent.
    background: usize,
    background_bytes: u64,
    /// Number of background requests that fill free room.
    filling: usize,
}

impl Flights {
    pub fn new(depth: QueueDepth) -> Self {
        let table = (0..depth.most).map(|_| None).collect();
        let usual = depth.usual as usize;
        Self { table, free: (0..depth.most).rev().collect(), usual, deeper: usual, ..Self::default() }
    }

    /// Notes that the consumer is here, and that what had arrived was removed. If the disk has read nearly all
    /// that it had while the consumer computed, and could have had more, it gets more the next time.
    pub fn arrive(&mut self) {
        if std::mem::take(&mut self.left_full) && self.in_flight() <= self.usual / NEARLY_IDLE {
            self.deeper = (self.deeper + self.usual).min(self.table.len());
        }
    }

    /// Notes that the consumer has to wait. If it left more behind than keeps the disk busy, which may read that
    /// before or beside what is waited for, it leaves less the next time.
    pub fn wait(&mut self) {
        let more = self.in_flight().saturating_sub(self.usual);
        if std::mem::take(&mut self.leaves) {
            self.deeper -= (more / 2).min(self.deeper - self.usual);
        }
    }

    /// Notes that the consumer goes on computing after what is sent now.
    pub fn leave(&mut self) {
        self.leaves = true;
    }

    /// Notes that all has been sent that could be.
    pub fn sent(&mut self) {
        self.left_full = self.leaves && self.is_full();
    }

    /// Returns the number of background requests.
    pub fn background(&self) -> usize {
        self.background
    }

    /// Returns the bytes of background requests.
    pub fn background_bytes(&self) -> u64 {
        self.background_bytes
    }

    /// Returns the number of background requests that fill free room.
    pub fn filling(&self) -> usize {
        self.filling
    }

    /// Returns the number of requests that the consumer may be waiting for.
    pub fn demand(&self) -> usize {
        self.in_flight() - self.background
    }

    pub fn in_flight(&self) -> usize {
        self.table.len() - self.free.len()
    }

    pub fn is_full(&self) -> bool {
        self.in_flight() >= if self.leaves { self.deeper } else { self.usual }
    }

    /// Adds a request and returns its tag; there must be room.
    pub fn insert(&mut self, flight: Flight) -> u32 {
        let tag = self.free.pop().expect("the caller looked for room");
        if flight.purpose.is_background() {
            self.background += 1;
            self.background_bytes += flight.need as u64;
            self.filling += usize::from(flight.purpose == Purpose::Fill);
        }
        self.table[tag as usize] = Some(flight);
        tag
    }

    pub fn get_mut(&mut self, tag: u32) -> Option<&mut Flight> {
        self.table.get_mut(tag as usize)?.as_mut()
    }

    pub fn remove(&mut self, tag: u32) -> Option<Flight> {
        let flight = self.table.get_mut(tag as usize)?.take()?;
        self.free.push(tag);
        if flight.purpose.is_background() {
            self.background -= 1;
            self.background_bytes -= flight.need as u64;
            self.filling -= usize::from(flight.purpose == Purpose::Fill);
        }
        Some(flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::Mapping;

    fn flight(need: usize) -> Flight {
        let mapping = Mapping::new(8192, false).unwrap();
        let buf = mapping.window(Place { offset: 0, len: 8192 }, 0, 8192);
        Flight {
            owner: Owner::Block(BlockId(0)),
            purpose: Purpose::Decode,
            sent: None,
            file: 0,
            copy: 0,
            avoid: 0,
            failure: None,
            offset: 1000 << 12,
            buf,
            need,
            came: 0,
            from: 0,
            refusals: 0,
        }
    }

    #[test]
    fn the_tail_behind_the_end_of_the_file_is_not_missed() {
        assert_eq!(flight(5000).judge(5000, 4096), Verdict::Done);
        assert_eq!(flight(5000).judge(8192, 4096), Verdict::Done);
    }

    #[test]
    fn more_than_was_requested_is_an_error() {
        let error = Verdict::Failed(Failure::Os(errors::INPUT_OUTPUT));
        assert_eq!(flight(5000).judge(8193, 4096), error);
        assert_eq!(flight(5000).judge(i32::MAX, 1), error);
    }

    #[test]
    fn short_reads_go_on_from_the_alignment() {
        assert_eq!(flight(8000).judge(5000, 4096), Verdict::Again { from: 4096 });
        assert_eq!(flight(8000).judge(5000, 1), Verdict::Again { from: 5000 });
    }

    #[test]
    fn no_progress_is_the_end_of_the_file() {
        let mut flight = flight(8000);
        assert_eq!(flight.judge(0, 1), Verdict::Failed(Failure::Eof { end: 1000 << 12 }));
        flight.from = 4096;
        let end = (1000 << 12) + 4096 + 100;
        assert_eq!(flight.judge(100, 512), Verdict::Failed(Failure::Eof { end }));
    }

    #[test]
    fn refusals_are_repeated_but_not_for_ever() {
        let mut flight = flight(8000);
        flight.from = 512;
        let passing = [errors::AGAIN, errors::INTERRUPTED, errors::CANCELLED];
        for errno in passing.into_iter().cycle().take(MAX_REFUSALS as usize) {
            assert_eq!(flight.judge(-errno, 512), Verdict::Again { from: 512 });
        }
        let errno = errors::AGAIN;
        assert_eq!(flight.judge(-errno, 512), Verdict::Failed(Failure::Os(errno)));
        assert_eq!(flight.judge(i32::MIN, 512), Verdict::Failed(Failure::Os(i32::MAX)));
    }

    #[test]
    fn a_disk_that_runs_dry_gets_more_and_one_that_is_waited_for_less() {
        let mut flights = Flights::new(QueueDepth { usual: 8, most: 32 });
        let send_all = |flights: &mut Flights| {
            while !flights.is_full() {
                flights.insert(flight(5000));
            }
            flights.sent();
            flights.in_flight()
        };
        let land = |flights: &mut Flights, left: usize| {
            while flights.in_flight() > left {
                let tag = (0..32).find(|tag| flights.get_mut(*tag).is_some()).unwrap();
                flights.remove(tag);
            }
            flights.arrive();
        };
        // While the consumer waits, it is never more than the usual number.
        assert_eq!(send_all(&mut flights), 8);
        land(&mut flights, 0);
        flights.wait();
        assert_eq!(send_all(&mut flights), 8);
        for more in [8, 16, 24, 32, 32] {
            flights.leave();
            assert_eq!(send_all(&mut flights), more);
            land(&mut flights, 1);
        }
        // 24 are left, 16 more than usual.
        flights.leave();
        send_all(&mut flights);
        land(&mut flights, 24);
        flights.wait();
        assert_eq!(send_all(&mut flights), 24);
        land(&mut flights, 10);
        flights.wait();
        flights.leave();
        assert_eq!(send_all(&mut flights), 24);
        // One that has no more to read than it has got no more than before.
        land(&mut flights, 0);
        let most = QueueDepth::growing(1000);
        assert_eq!((most.usual, most.most, QueueDepth::growing(32).most), (1000, 1024, 128));
    }
}
