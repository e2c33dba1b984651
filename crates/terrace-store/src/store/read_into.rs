//! Reading extents into the caller's memory, outside of the arena: resident weights at load, and
//! single rows.

use super::Store;
use super::loads::Window;
use super::sums::CallerSum;
use crate::block::Hull;
use crate::buffers::{IoBuf, Target};
use crate::error::StoreError;
use crate::inflight::{Flight, Owner, Stage};
use crate::ranges::Place;
use crate::slots::Failure;
use std::ops::ControlFlow;
use terrace_model::{ByteSize, Extent};

/// One read of a [`Store::read_into`].
#[derive(Debug)]
pub struct ReadInto<'a> {
    /// The bytes to read.
    pub extent: Extent,
    /// The memory to read into, as long as the extent, at any address. Direct reads go straight to
    /// it if the address and the extent's offset are equal modulo the alignment; otherwise they are
    /// copied once.
    pub dst: &'a mut [u8],
    /// Name of the bytes, for errors.
    pub name: &'a str,
}

/// The state of the running `read_into`.
#[derive(Debug, Default)]
pub(super) struct CallerReads {
    /// Number of requests in flight.
    outstanding: usize,
    /// True if more requests will follow.
    has_more: bool,
    /// Number of bytes that have arrived.
    done: u64,
    /// The first failure, with the index of the read.
    failure: Option<(usize, Failure)>,
    /// The copies of files that must not be read, as bits.
    avoid: u64,
    /// The checksum of each read, if that is known; empty if nothing is verified.
    pub(super) sums: Vec<Option<CallerSum>>,
}

impl CallerReads {
    /// Returns whether a `read_into` has more requests than it could send.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Returns the copies of its file that must not be read for one of the reads, as bits.
    pub fn avoid(&self, read: usize) -> u64 {
        self.avoid | self.sums.get(read).and_then(Option::as_ref).map_or(0, CallerSum::avoid)
    }

    /// Returns whether a `read_into` is running.
    pub fn is_running(&self) -> bool {
        self.has_more || self.outstanding > 0
    }
}

/// The rest of a read.
#[derive(Clone, Copy)]
struct Cursor {
    index: usize,
    rest: Extent,
    dst: Target,
}

/// The next request for a cursor.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Read this many bytes straight into the caller's memory.
    Straight(u64),
    /// Read this many bytes through staging memory.
    Staged(u64),
}

/// Waits, however the function is left, until no request writes to the caller's memory any more.
struct Settled<'a>(&'a mut Store);

impl Drop for Settled<'_> {
    fn drop(&mut self) {
        self.0.caller.has_more = false;
        while self.0.caller.outstanding > 0 {
            if let Err(error) = self.0.drive(true) {
                // Continuing would let the kernel write to memory that its owner uses again.
                tracing::error!(%error, "reads into the caller's memory can be neither stopped nor waited for");
                std::process::abort();
            }
        }
    }
}

impl Store {
    /// Reads extents into memory outside of the arena, with the whole queue depth. `progress` is
    /// called with the bytes read so far, and may stop it. Reads of fetches continue meanwhile, and
    /// no block is evicted.
    ///
    /// # Errors
    /// [`StoreError::Cancelled`] if `progress` stopped it; otherwise the error of a read. The
    /// contents of the destinations are then unspecified.
    pub fn read_into(
        &mut self,
        reads: &mut [ReadInto<'_>],
        progress: &mut dyn FnMut(ByteSize) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        self.read_from(reads, 0, progress)
    }

    /// Does the same without reading the copies of files in the set `avoid`.
    pub(super) fn read_from(
        &mut self,
        reads: &mut [ReadInto<'_>],
        avoid: u64,
        progress: &mut dyn FnMut(ByteSize) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        for read in reads.iter() {
            if read.extent.len > 0 {
                self.files.check(read.extent, &read.name)?;
            }
            if read.dst.len() as u64 != read.extent.len {
                let reason = format!(
                    "{} bytes cannot be read into {} bytes of memory",
                    read.extent.len,
                    read.dst.len()
                );
                return Err(StoreError::BadExtent { tensor: read.name.into(), reason });
            }
        }
        let total = reads.iter().map(|read| read.extent.len).sum();
        self.caller = CallerReads { sums: self.caller_sums(reads), avoid, ..CallerReads::default() };
        let started = self.clock.now();
        let guard = Settled(&mut *self);
        let outcome = guard.0.read_right(reads, progress);
        drop(guard);
        self.waited(None, started);
        if let Some((index, failure)) = self.caller.failure {
            let read = &reads[index];
            return Err(self.read_error(read.name.to_owned(), read.extent, failure));
        }
        match outcome? {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(StoreError::Cancelled { done: self.caller.done, total }),
        }
    }

    /// Reads everything, and what has another checksum than expected once more.
    fn read_right(
        &mut self,
        reads: &mut [ReadInto<'_>],
        progress: &mut dyn FnMut(ByteSize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let flow = self.read_all(reads, |_| true, progress)?;
        if flow.is_break() || self.caller.failure.is_some() {
            return Ok(flow);
        }
        let wrong = self.wrong_reads();
        if wrong.is_empty() {
            return Ok(flow);
        }
        self.read_again(&wrong);
        let is_wrong = |index| wrong.iter().any(|(wrong, _)| *wrong == index);
        let flow = self.read_all(reads, is_wrong, progress)?;
        if flow.is_continue() && self.caller.failure.is_none() {
            let still = self.wrong_reads();
            for (index, _) in wrong.iter().filter(|wrong| still.iter().all(|still| still.0 != wrong.0)) {
                self.read_healed(*index, reads[*index].name);
            }
            self.caller.failure = still.first().copied();
        }
        Ok(flow)
    }

    fn read_all(
        &mut self,
        reads: &mut [ReadInto<'_>],
        which: impl Fn(usize) -> bool,
        progress: &mut dyn FnMut(ByteSize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, StoreError> {
        let total = reads.iter().map(|read| read.extent.len).sum();
        let mut cursors = reads
            .iter_mut()
            .enumerate()
            .filter(|(index, _)| which(*index))
            .map(|(index, read)| Cursor { index, rest: read.extent, dst: Target::of(read.dst) })
            .filter(|cursor| cursor.rest.len > 0);
        let mut current = cursors.next();
        let mut told = 0;
        loop {
            while let Some(cursor) = &mut current {
                if self.flights.is_full() || !self.send_step(cursor) {
                    break;
                }
                if cursor.rest.len == 0 {
                    current = cursors.next();
                }
            }
            self.caller.has_more = current.is_some();
            if self.caller.outstanding == 0 && current.is_none() {
                return Ok(ControlFlow::Continue(()));
            }
            self.drive(true)?;
            if self.caller.failure.is_some() {
                return Ok(ControlFlow::Continue(()));
            }
            if self.caller.done != told {
                told = self.caller.done;
                // What is read again does not count twice.
                if progress(ByteSize(told.min(total))).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
    }

    /// Sends the cursor's next request. Returns false if it must wait for staging memory that
    /// earlier requests hold.
    fn send_step(&mut self, cursor: &mut Cursor) -> bool {
        let align = self.files.align;
        let Cursor { index, rest, dst } = *cursor;
        let sent = match step(rest, dst.address as u64, align, self.request_size) {
            Step::Straight(len) => {
                let target = dst.first(as_len(len));
                let owner = Owner::Caller { read: index, len, stage: None };
                self.caller.outstanding += 1;
                let window = Window { buf: IoBuf::over(target), need: len, fresh: true };
                self.send(owner, rest.file.0, rest.offset, window);
                len
            }
            Step::Staged(len) => {
                let Some((len, hull, place, bounce)) = self.stage(Extent { len, ..rest }) else {
                    return false;
                };
                let mapping = if bounce { &self.bounce } else { &self.mapping };
                let buf = mapping.window(place, 0, hull.len);
                let stage = Stage { place, bounce, skip: as_len(hull.skip), dst: dst.first(as_len(len)) };
                let owner = Owner::Caller { read: index, len, stage: Some(stage) };
                self.caller.outstanding += 1;
                let window = Window { buf, need: hull.skip + len, fresh: false };
                self.send(owner, rest.file.0, hull.offset, window);
                len
            }
        };
        cursor.rest = Extent { offset: rest.offset + sent, len: rest.len - sent, ..rest };
        cursor.dst = dst.skip(as_len(sent));
        true
    }

    /// Allocates staging memory for the extent: from free room of the arena, since nothing is
    /// evicted for it, or from the bounce buffer, for as much of the extent's beginning as that
    /// holds.
    fn stage(&mut self, extent: Extent) -> Option<(u64, Hull, Place, bool)> {
        let hull = Hull::of(extent, self.files.align);
        if let Some(place) = self.ranges.alloc(hull.len) {
            return Some((extent.len, hull, place, false));
        }
        let most = self.bounce_ranges.len() / 4;
        let len = extent.len.min(most - hull.skip);
        let hull = Hull::of(Extent { len, ..extent }, self.files.align);
        self.bounce_ranges.alloc(hull.len).map(|place| (len, hull, place, true))
    }

    /// Ends a request of a `read_into`.
    pub(super) fn caller_part_over(&mut self, flight: Flight, failure: Option<Failure>) {
        let Flight { owner, buf, .. } = flight;
        let Owner::Caller { read, len, stage } = owner else { return };
        if let Some(stage) = stage {
            if failure.is_none() {
                buf.copy_to(stage.skip, stage.dst);
            }
            if stage.bounce { self.bounce_ranges.free(stage.place) } else { self.free_staging(stage.place) }
        }
        self.caller.outstanding -= 1;
        match failure {
            None => self.caller.done += len,
            Some(failure) => self.caller.failure = Some(earlier(self.caller.failure, read, failure)),
        }
    }
}

/// Chooses the failure to report: the first one, but with the smallest end for a file that ends too
/// early, because a part that lies entirely after the end does not know where that is.
fn earlier(known: Option<(usize, Failure)>, read: usize, failure: Failure) -> (usize, Failure) {
    match (known, failure) {
        (Some((at, Failure::Eof { end })), Failure::Eof { end: other }) if at == read => {
            (at, Failure::Eof { end: end.min(other) })
        }
        (Some(known), _) => known,
        (None, failure) => (read, failure),
    }
}

fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("a part of memory that exists")
}

/// Returns how to read the beginning of `rest` to `address`, with requests of at most `limit`
/// bytes, which must be a multiple of a page.
fn step(rest: Extent, address: u64, align: u64, limit: u64) -> Step {
    let off = rest.offset % align;
    // A staged request's hull begins `off` bytes earlier.
    let staged = rest.len.min(limit - off);
    if (rest.offset ^ address) & (align - 1) != 0 {
        return Step::Staged(staged);
    }
    match rest.len.min(limit) {
        len if off == 0 && len >= align => Step::Straight(len - len % align),
        _ if off == 0 => Step::Staged(staged),
        _ => Step::Staged(staged.min(align - off)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranges::GRANULE;
    use terrace_model::FileIndex;

    const fn at(offset: u64, len: u64) -> Extent {
        Extent { file: FileIndex(0), offset, len }
    }

    #[test]
    fn aligned_memory_is_read_to_straight() {
        let limit = 4 * GRANULE;
        assert_eq!(step(at(4096, 100_000), 0x10000, 512, limit), Step::Straight(limit));
        assert_eq!(step(at(4096, 1000), 0x10000, 512, limit), Step::Straight(512));
        assert_eq!(step(at(4096, 500), 0x10000, 512, limit), Step::Staged(500));
        assert_eq!(step(at(4100, 5000), 0x10004, 512, limit), Step::Staged(508));
        assert_eq!(step(at(4100, 50), 0x10004, 512, limit), Step::Staged(50));
    }

    #[test]
    fn other_memory_is_staged_within_the_limit() {
        let limit = 4 * GRANULE;
        assert_eq!(step(at(4100, 100_000), 0x10000, 512, limit), Step::Staged(limit - 4));
        assert_eq!(step(at(4100, 60), 0x10000, 512, limit), Step::Staged(60));
    }

    #[test]
    fn a_file_ends_where_the_first_missing_byte_is() {
        let beyond = earlier(None, 3, Failure::Eof { end: 90 });
        assert_eq!(earlier(Some(beyond), 3, Failure::Eof { end: 70 }), (3, Failure::Eof { end: 70 }));
        assert_eq!(earlier(Some(beyond), 4, Failure::Eof { end: 70 }), beyond, "another read");
        assert_eq!(earlier(Some(beyond), 3, Failure::Os(5)), beyond);
    }

    #[test]
    fn buffered_reads_never_need_a_detour() {
        assert_eq!(step(at(4101, 70_000), 0x10007, 1, 65536), Step::Straight(65536));
        assert_eq!(step(at(4101, 7), 0x10007, 1, 65536), Step::Straight(7));
    }
}
