//! Reading rows of tables: asked for ahead of their use, joined into few requests, and kept in RAM by
//! recency.

use super::Store;
use super::loads::Window;
use super::sums::Again;
use crate::block::{BlockId, Hull};
use crate::buffers::Mapping;
use crate::error::StoreError;
use crate::inflight::{Flight, Owner};
use crate::ranges::{GRANULE, Ranges};
use crate::rows::RowTable;
use crate::rows::cache::{Row, RowCache, RowKey, RowState};
use crate::rows::join::{Joiner, Span};
use crate::slots::Failure;
use crate::store::read_into::ReadInto;
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use terrace_model::{ByteSize, Extent};

/// Bytes that requests read into, and the most of one request.
const STAGING: u64 = 512 << 10;
const LARGEST: u64 = 128 << 10;

/// A part of a span that the engine does not have yet.
#[derive(Clone, Copy, Debug)]
struct Piece {
    table: RowTable,
    span: u64,
    file: u32,
    offset: u64,
    /// Bytes to read, and the part of these that must arrive.
    len: u64,
    need: u64,
}

/// The state of reads by row.
#[derive(Debug)]
pub(super) struct Rows {
    cache: RowCache,
    /// Memory that requests read into, and its free parts; `None` until there is a request.
    staging: Option<(Arc<Mapping>, Ranges)>,
    /// What is left to send, in order.
    pending: VecDeque<Piece>,
    in_flight: usize,
    /// Spans so far.
    spans: u64,
    /// Rows that a call asks for, each with its number among these; kept for its memory.
    order: Vec<(u64, usize)>,
}

impl Rows {
    /// Keeps at most this many bytes of rows.
    pub fn new(most: ByteSize) -> Self {
        Self {
            cache: RowCache::new(most.bytes()),
            staging: None,
            pending: VecDeque::new(),
            in_flight: 0,
            spans: 0,
            order: Vec::new(),
        }
    }

    /// Begins a pass.
    pub fn next_pass(&mut self) {
        self.cache.next_pass();
    }

    /// Drops what was not sent yet.
    pub fn drop_pending(&mut self) {
        self.pending.clear();
    }

    /// Maps the memory that requests read into, once.
    fn map_staging(&mut self) -> Result<(), StoreError> {
        if self.staging.is_none() {
            let mapping = Mapping::new(as_len(STAGING), false)
                .map_err(|source| StoreError::Arena { budget: ByteSize(STAGING), source })?;
            self.staging = Some((mapping, Ranges::new(STAGING, as_len(STAGING / GRANULE))));
        }
        Ok(())
    }
}

impl Store {
    /// Starts to read those of these rows that are not in RAM, for a [`Store::read_rows`] later in the
    /// pass. Does not wait. Rows that the table does not have, and rows for which there is no room beside
    /// the others that the pass wants, are left out.
    ///
    /// # Errors
    /// [`StoreError::Misuse`] for a block that the store does not have; [`StoreError::Engine`];
    /// [`StoreError::Arena`] if there is no memory to read into.
    pub fn expect_rows(
        &mut self,
        table: RowTable,
        rows: impl Iterator<Item = u64>,
    ) -> Result<(), StoreError> {
        self.check_ids(&[table.block])?;
        let count = self.row_count(table);
        let mut order = std::mem::take(&mut self.rows.order);
        order.extend(rows.filter(|row| *row < count).map(|row| (row, 0)));
        order.sort_unstable();
        let before = self.counters.total.rows.read;
        let asked = self.ask(table, &order, 0, false);
        self.counters.total.rows.ahead += self.counters.total.rows.read - before;
        order.clear();
        self.rows.order = order;
        asked.map(|_| ())
    }

    /// Reads rows, each once however often it is listed, and calls `take` for each place in the list with
    /// the row's bytes: in the order of the rows, not of the list.
    ///
    /// # Errors
    /// [`StoreError::Misuse`] for a row that the table does not have; otherwise the same as
    /// [`Store::expect_rows`] and [`Store::read_into`]. Some rows may have been taken then.
    pub fn read_rows(
        &mut self,
        table: RowTable,
        rows: impl Iterator<Item = u64>,
        take: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), StoreError> {
        self.check_ids(&[table.block])?;
        let count = self.row_count(table);
        let mut order = std::mem::take(&mut self.rows.order);
        order.extend(rows.zip(0..));
        order.sort_unstable();
        let result = match order.last() {
            Some((row, _)) if *row >= count => {
                let table = &self.blocks[table.block.index()];
                Err(StoreError::Misuse(format!("{table} has {count} rows, but row {row} is asked for")))
            }
            _ => self.read_in_order(table, &order, take),
        };
        order.clear();
        self.rows.order = order;
        result
    }

    fn read_in_order(
        &mut self,
        table: RowTable,
        order: &[(u64, usize)],
        take: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<(), StoreError> {
        // Rows up to `asked` are here or on their way. If there is no room for all, the next ones are
        // asked for, many at a time, when half of these have been taken.
        let (mut asked, mut ask_at) = (0, 0);
        let mut at = 0;
        for same in order.chunk_by(|a, b| a.0 == b.0) {
            if at >= ask_at && asked < order.len() {
                asked = self.ask(table, order, at.max(asked), asked <= at)?;
                ask_at = at + ((asked - at) / 2).max(1);
            }
            let key = RowKey { block: table.block, row: same[0].0 };
            self.wait_for(key)?;
            match self.rows.cache.row(key) {
                Some(Row { state: RowState::Here, bytes, .. }) => {
                    same.iter().for_each(|(_, place)| take(*place, bytes));
                }
                row => {
                    let again = match row.map(|row| row.state) {
                        Some(RowState::Wrong(again)) => Some(again),
                        _ => None,
                    };
                    let bytes = self.read_alone(key, self.row_extent(table, key.row), again)?;
                    same.iter().for_each(|(_, place)| take(*place, &bytes));
                }
            }
            self.rows.cache.taken(key);
            at += same.len();
            let stats = &mut self.counters.total.rows;
            stats.asked += same.len() as u64;
            stats.distinct += 1;
        }
        Ok(())
    }

    /// Asks for rows of the list from the `from`-th on, for as many as there is room for. With `must`,
    /// that is one at least. Returns the end of these in the list.
    fn ask(
        &mut self,
        table: RowTable,
        order: &[(u64, usize)],
        from: usize,
        must: bool,
    ) -> Result<usize, StoreError> {
        self.rows.map_staging()?;
        let mut joiner = Joiner::default();
        let mut end = from;
        for same in order[from..].chunk_by(|a, b| a.0 == b.0) {
            let key = RowKey { block: table.block, row: same[0].0 };
            if !self.rows.cache.want(key) {
                if !(self.rows.cache.make_room(table.row) || must && end == from) {
                    break;
                }
                let extent = self.row_extent(table, key.row);
                if let Some(span) = joiner.add(extent.offset, extent.end()) {
                    self.push_span(table, span);
                }
                self.rows.cache.add(key, table.row, self.rows.spans);
                self.counters.total.rows.read += 1;
            }
            end += same.len();
        }
        if let Some(span) = joiner.finish() {
            self.push_span(table, span);
        }
        self.drive(false)?;
        Ok(end)
    }

    /// Queues the requests of a span.
    fn push_span(&mut self, table: RowTable, span: Span) {
        let file = self.blocks[table.block.index()].extent.file;
        let all = Extent { file, offset: span.from, len: span.to - span.from };
        let hull = Hull::of(all, self.files.align);
        let largest = LARGEST.min(self.request_size);
        for from in (0..hull.len).step_by(usize::try_from(largest).unwrap_or(usize::MAX)) {
            let (offset, len) = (hull.offset + from, largest.min(hull.len - from));
            let need = len.min(span.to - offset);
            let piece = Piece { table, span: self.rows.spans, file: file.0, offset, len, need };
            self.rows.pending.push_back(piece);
        }
        self.rows.spans += 1;
    }

    /// Sends requests for rows while the engine has room.
    pub(super) fn feed_rows(&mut self) {
        while let Some(&Piece { table, span, file, offset, len, need }) = self.rows.pending.front() {
            let Some((mapping, free)) = &mut self.rows.staging else { return };
            if self.flights.is_full() {
                return;
            }
            let Some(place) = free.alloc(len.next_multiple_of(GRANULE)) else { return };
            let buf = mapping.window(place, 0, len);
            self.rows.pending.pop_front();
            self.rows.in_flight += 1;
            self.counters.total.rows.requests += 1;
            let window = Window { buf, need, fresh: false };
            self.send(Owner::Rows { table, span, place }, file, offset, window);
        }
    }

    /// Ends a request for rows: gives the span's rows their parts of it.
    pub(super) fn row_part_over(&mut self, flight: Flight, failure: Option<Failure>) {
        let Owner::Rows { table, span, place } = flight.owner else { return };
        let extent = self.blocks[table.block.index()].extent;
        let (from, to) = (flight.offset.max(extent.offset), flight.offset + flight.need as u64);
        for number in (from - extent.offset) / table.row..=(to - 1 - extent.offset) / table.row {
            let own = self.row_extent(table, number);
            let Some(row) = self.rows.cache.row_mut(RowKey { block: table.block, row: number }) else {
                continue;
            };
            // Other spans may read a hole with this row in it.
            let RowState::Loading { span: of, missing, sum } = &mut row.state else { continue };
            if *of != span {
                continue;
            }
            if failure.is_some() {
                row.state = RowState::Failed;
                continue;
            }
            let (start, end) = (from.max(own.offset), to.min(own.end()));
            let part = flight.buf.arrived(as_len(start - flight.offset), as_len(end - start));
            row.bytes[as_len(start - own.offset)..][..part.len()].copy_from_slice(part);
            *missing -= part.len() as u64;
            let found = self.verify.as_ref().and_then(|_| sum.add(own, start, part, flight.copy));
            if *missing > 0 {
                continue;
            }
            let sum = *sum;
            row.state = RowState::Here;
            let Some((found, expected)) = found.zip(self.expected_sum(own)) else { continue };
            self.counters.total.verified += 1;
            if found != expected {
                self.counters.total.mismatches += 1;
                let again = Again::of(&self.copies, own, &sum);
                if let Some(row) = self.rows.cache.row_mut(RowKey { block: table.block, row: number }) {
                    row.state = RowState::Wrong(again);
                }
            }
        }
        self.rows.in_flight -= 1;
        if let Some((_, free)) = &mut self.rows.staging {
            free.free(place);
        }
    }

    /// Waits until a row is not on its way any more.
    fn wait_for(&mut self, key: RowKey) -> Result<(), StoreError> {
        let loading = |store: &Self| {
            let row = store.rows.cache.row(key);
            row.is_some_and(|row| matches!(row.state, RowState::Loading { .. }))
        };
        if !loading(self) {
            return Ok(());
        }
        let asked = self.clock.now();
        let mut driven = Ok(());
        while driven.is_ok() && loading(self) {
            if self.flights.in_flight() == 0 && self.rows.pending.is_empty() {
                driven = Err(StoreError::Misuse("a row is waited for that is not being read".into()));
                break;
            }
            driven = self.drive(true);
        }
        self.counters.total.rows.stall += self.clock.now().saturating_duration_since(asked);
        self.waited(None, asked);
        driven
    }

    /// Reads a row with requests of its own, after it has failed or had another checksum than expected;
    /// then `again` says which copies of the file gave it. Errors are this read's.
    fn read_alone(
        &mut self,
        key: RowKey,
        extent: Extent,
        again: Option<Again>,
    ) -> Result<Vec<u8>, StoreError> {
        self.rows.cache.remove(key);
        let name = self.blocks[key.block.index()].to_string();
        let mut bytes = vec![0; as_len(extent.len)];
        if again.is_some() {
            self.files.drop_cached(extent);
        }
        let mut reads = [ReadInto { extent, dst: &mut bytes, name: &name }];
        self.read_from(&mut reads, again.map_or(0, |again| again.avoid), &mut |_| ControlFlow::Continue(()))?;
        if let Some(again) = again {
            self.healed(&name, extent, again);
        }
        Ok(bytes)
    }

    /// Forgets the rows of a table, after waiting for those on their way.
    pub(super) fn forget_rows(&mut self, block: BlockId) -> Result<(), StoreError> {
        while self.rows.in_flight > 0 || !self.rows.pending.is_empty() {
            self.drive(true)?;
        }
        self.rows.cache.forget(block);
        Ok(())
    }

    fn row_count(&self, table: RowTable) -> u64 {
        self.blocks[table.block.index()].extent.len.checked_div(table.row).unwrap_or(0)
    }

    fn row_extent(&self, table: RowTable, row: u64) -> Extent {
        let extent = self.blocks[table.block.index()].extent;
        Extent { offset: extent.offset + row * table.row, len: table.row, ..extent }
    }
}

fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("a part of memory that exists")
}
