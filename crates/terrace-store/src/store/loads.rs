//! Sending requests for slots to the engine, and processing the results.

use super::Store;
use super::elsewhere::Elsewhere;
use crate::block::{BlockId, Hull};
use crate::buffers::{IoBuf, Target};
use crate::error::StoreError;
use crate::inflight::{Flight, Owner, Verdict};
use crate::io::{Completion, ORIGINAL, Request};
use crate::purpose::Purpose;
use crate::ranges::GRANULE;
use crate::slots::{Failure, PartOver, SlotState};
use std::io;
use std::time::Duration;
use terrace_model::Extent;
use terrace_platform::errors;

/// Pause before repeating a request that the system keeps refusing.
const REFUSED_NAP: Duration = Duration::from_micros(100);
/// Maximum number of immediate retries of a refused request.
const QUICK_REFUSALS: u32 = 16;

/// The memory that a request reads into.
pub(super) struct Window {
    pub buf: IoBuf,
    /// Bytes from its start that must arrive.
    pub need: u64,
    /// True if it has most likely never been written to.
    pub fresh: bool,
}

impl Store {
    /// Processes completions, and sends as many requests as the engine has room for. With `wait`,
    /// and if anything is in flight, at least one request completes.
    pub(super) fn drive(&mut self, wait: bool) -> Result<(), StoreError> {
        if wait {
            self.flights.wait();
        }
        self.process(wait)
    }

    /// Like [`drive`](Self::drive) without waiting, for a consumer that goes on computing, during which nothing
    /// is sent: the disk gets as much as it reads meanwhile.
    pub(super) fn drive_and_leave(&mut self) -> Result<(), StoreError> {
        self.flights.leave();
        self.process(false)
    }

    fn process(&mut self, wait: bool) -> Result<(), StoreError> {
        self.feed();
        if self.flights.in_flight() > 0 {
            let mut completions = std::mem::take(&mut self.completions);
            let reaped = self.engine.reap(wait, &mut completions);
            let mut outcome = reaped.map_err(|source| self.engine_error(source));
            for completion in completions.drain(..) {
                outcome = outcome.and(self.complete(completion));
            }
            self.completions = completions;
            outcome?;
            self.flights.arrive();
            self.feed();
            self.engine.flush().map_err(|source| self.engine_error(source))?;
        }
        self.flights.sent();
        // In this order, so that time with demand is never longer than time with any request.
        self.demand.set(self.flights.demand() > 0, &self.clock);
        self.busy.set(self.flights.in_flight() > 0, &self.clock);
        Ok(())
    }

    fn engine_error(&self, source: io::Error) -> StoreError {
        StoreError::Engine { engine: self.info.name, source }
    }

    /// Sends rows and parts of the backlog while the engine has room, and then background reads.
    fn feed(&mut self) {
        if self.caller.has_more() {
            // The consumer waits for those, not for the backlog.
            return;
        }
        self.feed_rows();
        while let Some(&block) = self.backlog.front() {
            if self.flights.is_full() {
                return;
            }
            self.push_part(block);
            if self.backlog.front() == Some(&block) && self.is_pushed(block) {
                self.backlog.pop_front();
            }
        }
        self.feed_background();
    }

    /// Sends the next part of a loading block, which must not have been sent completely; the table
    /// must have room.
    pub(super) fn push_part(&mut self, block: BlockId) {
        let hull = self.hull(block);
        let SlotState::Loading { place, pushed, .. } = self.slots.state(block) else {
            debug_assert!(false, "{block:?} is to be read and {:?}", self.slots.state(block));
            return;
        };
        let len = chunk_len(hull, self.request_size).min(hull.len - pushed);
        let need = len.min(hull.skip + self.blocks[block.index()].extent.len - pushed);
        let buf = self.mapping.window(place, pushed, len);
        let file = self.blocks[block.index()].extent.file.0;
        self.slots.chunk_pushed(block, len);
        let end = place.offset + pushed + len;
        // Room that is filled was free so far, perhaps since it was given back.
        let fresh = end > self.touched || self.order.purpose(block) == Purpose::Fill;
        self.touched = self.touched.max(end);
        let window = Window { buf, need, fresh };
        self.send(Owner::Block(block), file, hull.offset + pushed, window);
    }

    /// Returns whether all of the block was passed to the engine, or does not need to be any more.
    pub(super) fn is_pushed(&self, block: BlockId) -> bool {
        match self.slots.state(block) {
            SlotState::Loading { pushed, failure: None, .. } => pushed == self.hull(block).len,
            _ => true,
        }
    }

    /// Sends one request; the table must have room.
    pub(super) fn send(&mut self, owner: Owner, file: u32, offset: u64, window: Window) {
        let Window { buf, need, fresh } = window;
        let need = usize::try_from(need).expect("a part of a window");
        let target = buf.target();
        let block = owner.block();
        let purpose = block.map_or(Purpose::Caller, |block| self.order.purpose(block));
        let sent = self.timeline.is_some().then(|| self.clock.now());
        let avoid = self.ruled_out(&owner);
        let copy = self.copies.choose(file, need as u64, avoid).unwrap_or(ORIGINAL);
        let (came, from, refusals, failure) = (0, 0, 0, None);
        let flight = Flight {
            owner,
            purpose,
            sent,
            file,
            copy,
            avoid,
            failure,
            offset,
            buf,
            need,
            came,
            from,
            refusals,
        };
        let tag = self.flights.insert(flight);
        self.counters.sent(block, &self.clock);
        self.copies.sent(file, copy, need as u64);
        let request = self.request(tag, (file, copy), offset, target);
        self.push(block, Request { slow_start: request.slow_start || fresh, ..request });
        self.demand.set(self.flights.demand() > 0, &self.clock);
    }

    /// Makes a request to a copy of a file.
    pub(super) fn request(&self, tag: u32, (file, copy): (u32, u8), offset: u64, target: Target) -> Request {
        let file = self.copies.descriptor(file, copy, self.files.all.len());
        let slow_start = self.files.descriptor(file).buffered;
        Request { tag, file, copy, offset, target, slow_start }
    }

    /// Passes a request to the engine. If the engine refuses it, it counts as failed.
    pub(super) fn push(&mut self, block: Option<BlockId>, request: Request) {
        self.busy.set(true, &self.clock);
        self.counters.request(block);
        if let Err(error) = self.engine.push(request) {
            let errno = errors::number(&error);
            self.land(request.tag, Some(Failure::Os(errno)));
        }
    }

    fn complete(&mut self, completion: Completion) -> Result<(), StoreError> {
        let Completion { tag, result } = completion;
        let align = usize::try_from(self.files.align).expect("at most a page");
        let Some(flight) = self.flights.get_mut(tag) else {
            return Err(self
                .engine_error(io::Error::other(format!("it reported request {tag}, which does not exist"))));
        };
        let block = flight.owner.block();
        let bytes = u64::try_from(result).unwrap_or(0);
        flight.came += bytes;
        self.copies.read(flight.file, flight.copy, bytes);
        self.counters.read(block, flight.purpose, bytes);
        if matches!(flight.owner, Owner::Rows { .. }) {
            self.counters.total.rows.bytes.0 += bytes;
        }
        let failure = match flight.judge(result, align) {
            Verdict::Done => None,
            Verdict::Failed(failure) => Some(failure),
            Verdict::Again { from } => {
                flight.from = from;
                let (offset, target) = (flight.offset + from as u64, flight.buf.target().skip(from));
                let copy = (flight.file, flight.copy);
                if flight.refusals > QUICK_REFUSALS {
                    std::thread::sleep(REFUSED_NAP);
                }
                self.push(block, self.request(tag, copy, offset, target));
                return Ok(());
            }
        };
        self.land(tag, failure);
        Ok(())
    }

    /// Ends a request, and returns its memory to its owner. One that failed is sent again if there is
    /// another copy to read from.
    fn land(&mut self, tag: u32, failure: Option<Failure>) {
        let failure = match failure.map(|failure| self.read_elsewhere(tag, failure)) {
            Some(Elsewhere::Sent) => return,
            Some(Elsewhere::Nowhere(failure)) => Some(failure),
            None => None,
        };
        let Some(flight) = self.flights.remove(tag) else { return };
        self.copies.landed(flight.file, flight.copy, flight.need as u64);
        self.counters.landed(flight.owner.block(), &self.clock);
        self.record_read(tag, &flight);
        match flight.owner {
            Owner::Block(block) => {
                let failure = failure.or_else(|| self.sum_block_part(block, &flight));
                self.block_part_over(block, failure);
            }
            Owner::Caller { .. } => {
                if failure.is_none() {
                    self.sum_caller_part(&flight);
                }
                self.caller_part_over(flight, failure);
            }
            Owner::Rows { .. } => self.row_part_over(flight, failure),
        }
    }

    fn block_part_over(&mut self, block: BlockId, failure: Option<Failure>) {
        if failure.is_some() {
            // The other parts do not need to be read any more.
            self.backlog.retain(|other| *other != block);
            self.background.partial = self.background.partial.filter(|other| *other != block);
        }
        let background = self.order.purpose(block).is_background();
        // The bytes of a background read that failed may have been requested meanwhile.
        let again = background || failure.is_some_and(|failure| self.may_heal(block, failure));
        let failed = match self.slots.chunk_over(block, failure, self.hull(block).len, again) {
            PartOver::Pending => return,
            PartOver::Arrived => return self.sum_over(block, true),
            PartOver::Failed(place) => {
                self.sum_over(block, false);
                Some(place)
            }
            PartOver::Again => None,
        };
        if background && let Some(failure) = failure {
            self.background_failed(block, failure);
        }
        match failed {
            Some(place) => {
                self.order.gone(block);
                self.ranges.free(place);
            }
            None => {
                self.sum_again(block);
                self.order.begin_again(block);
                self.backlog.push_back(block);
            }
        }
    }

    /// Makes the error for bytes of `extent` that did not arrive.
    pub(super) fn read_error(&self, tensor: String, extent: Extent, failure: Failure) -> StoreError {
        let path = self.files.all[extent.file.index()].path.clone();
        let Extent { offset, len, .. } = extent;
        match failure {
            Failure::Os(errno) => {
                StoreError::Read { path, tensor, offset, len, source: io::Error::from_raw_os_error(errno) }
            }
            Failure::Checksum { expected, found } => {
                StoreError::Checksum { path, tensor, offset, len, expected, found }
            }
            Failure::Eof { end } => StoreError::UnexpectedEof {
                path,
                tensor,
                offset,
                wanted: len,
                got: end.saturating_sub(offset),
            },
        }
    }
}

/// Returns the bytes of a request for a part of the hull: equal parts of whole pages, none larger
/// than `request_size`.
fn chunk_len(hull: Hull, request_size: u64) -> u64 {
    hull.len.div_ceil(hull.len.div_ceil(request_size)).next_multiple_of(GRANULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_even_and_bounded() {
        for (len, size) in
            [(1, 4096), (4096, 4096), (4097, 4096), (10 << 20, 1 << 20), ((1 << 20) + 1, 1 << 20)]
        {
            let chunk = chunk_len(Hull { offset: 0, len, skip: 0 }, size);
            assert!(chunk <= size && chunk > 0 && chunk.is_multiple_of(GRANULE), "{len} by {size}: {chunk}");
        }
        assert_eq!(chunk_len(Hull { offset: 0, len: 1200 << 10, skip: 0 }, 1 << 20), 600 << 10);
    }
}
