//! Rows of tables in RAM: those that are being read, and the most recently used others, up to a number
//! of bytes.

use crate::block::BlockId;
use crate::store::{Again, Sum};
use lru::LruCache;

/// A row of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowKey {
    pub block: BlockId,
    pub row: u64,
}

/// The state of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RowState {
    /// The requests of a span of this number read it.
    Loading {
        span: u64,
        /// Bytes that have not arrived.
        missing: u64,
        sum: Sum,
    },
    Here,
    /// A request for a part of it has failed.
    Failed,
    /// Its bytes have another checksum than expected.
    Wrong(Again),
}

/// A row, with its bytes if it is here.
#[derive(Debug)]
pub(crate) struct Row {
    pub state: RowState,
    /// The pass that asked for it and has not taken it yet; 0 if it is free to go.
    wanted: u64,
    pub bytes: Box<[u8]>,
}

/// Rows by use.
#[derive(Debug)]
pub(crate) struct RowCache {
    rows: LruCache<RowKey, Row>,
    /// Memory of rows that are gone.
    spare: Vec<Box<[u8]>>,
    /// Bytes of all rows, and the most of these.
    held: u64,
    most: u64,
    /// Number of the current pass, from 1 on.
    pass: u64,
}

/// Most pieces of memory that are kept for other rows.
const SPARE: usize = 64;

impl RowCache {
    pub fn new(most: u64) -> Self {
        Self { rows: LruCache::unbounded(), spare: Vec::new(), held: 0, most, pass: 1 }
    }

    /// Begins a pass: what earlier ones have asked for and not taken may go.
    pub fn next_pass(&mut self) {
        self.pass += 1;
    }

    /// Notes that the current pass wants the row. Returns whether it is here, or on its way.
    pub fn want(&mut self, key: RowKey) -> bool {
        let Some(row) = self.rows.get_mut(&key) else { return false };
        row.wanted = self.pass;
        true
    }

    /// Makes room for a row of `len` bytes. Others go for it, but none that is being read or wanted by the
    /// current pass. Returns false if that is not enough.
    pub fn make_room(&mut self, len: u64) -> bool {
        while self.held + len > self.most {
            let may_go = |(_, row): &(&RowKey, &Row)| {
                row.wanted != self.pass && !matches!(row.state, RowState::Loading { .. })
            };
            let Some(key) = self.rows.iter().rev().find(may_go).map(|(key, _)| *key) else { return false };
            self.remove(key);
        }
        true
    }

    /// Adds a row of `len` bytes that the span will read, and that the current pass wants.
    pub fn add(&mut self, key: RowKey, len: u64, span: u64) {
        let size = usize::try_from(len).expect("a row fits the address space");
        let fitting = self.spare.iter().position(|spare| spare.len() == size);
        let bytes = fitting.map(|at| self.spare.swap_remove(at));
        let bytes = bytes.unwrap_or_else(|| vec![0; size].into_boxed_slice());
        let state = RowState::Loading { span, missing: len, sum: Sum::default() };
        self.held += len;
        let before = self.rows.put(key, Row { state, wanted: self.pass, bytes });
        debug_assert!(before.is_none(), "{key:?} was there");
    }

    /// Returns the row.
    pub fn row(&self, key: RowKey) -> Option<&Row> {
        self.rows.peek(&key)
    }

    /// Returns the row, to be changed.
    pub fn row_mut(&mut self, key: RowKey) -> Option<&mut Row> {
        self.rows.peek_mut(&key)
    }

    /// Notes that the row was taken.
    pub fn taken(&mut self, key: RowKey) {
        if let Some(row) = self.rows.peek_mut(&key) {
            row.wanted = 0;
        }
    }

    /// Forgets a row.
    pub fn remove(&mut self, key: RowKey) {
        if let Some(row) = self.rows.pop(&key) {
            self.held -= row.bytes.len() as u64;
            if self.spare.len() < SPARE {
                self.spare.push(row.bytes);
            }
        }
    }

    /// Forgets the rows of a table, none of which may be on its way.
    pub fn forget(&mut self, block: BlockId) {
        let keys: Vec<RowKey> =
            self.rows.iter().map(|(key, _)| *key).filter(|key| key.block == block).collect();
        keys.into_iter().for_each(|key| self.remove(key));
        self.spare.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn key(row: u64) -> RowKey {
        RowKey { block: BlockId(3), row }
    }

    /// A cache of 400 bytes with these rows of 100 bytes, all of them here and taken.
    fn cache(rows: &[u64]) -> RowCache {
        let mut cache = RowCache::new(400);
        for &row in rows {
            assert!(add(&mut cache, row));
            arrive(&mut cache, row);
            cache.taken(key(row));
        }
        cache
    }

    /// Adds a row if there is room.
    fn add(cache: &mut RowCache, row: u64) -> bool {
        let room = cache.make_room(100);
        if room {
            cache.add(key(row), 100, 1);
        }
        room
    }

    fn arrive(cache: &mut RowCache, row: u64) {
        cache.row_mut(key(row)).unwrap().state = RowState::Here;
    }

    fn here(cache: &RowCache) -> Vec<u64> {
        (0..20).filter(|&row| cache.row(key(row)).is_some()).collect()
    }

    #[test]
    fn the_least_recently_used_row_goes() {
        let mut cache = cache(&[0, 1, 2, 3]);
        assert!(cache.want(key(0)) && !cache.want(key(9)));
        assert!(add(&mut cache, 4));
        assert_eq!(here(&cache), [0, 2, 3, 4]);
    }

    #[test]
    fn rows_stay_until_the_pass_that_wants_them_takes_them() {
        let mut cache = cache(&[0, 1, 2, 3]);
        (0..4).for_each(|row| assert!(cache.want(key(row))));
        assert!(!add(&mut cache, 4));
        cache.add(key(4), 100, 2);
        assert_eq!(here(&cache), [0, 1, 2, 3, 4], "a row that is needed now always finds memory");
        cache.taken(key(2));
        assert!(!add(&mut cache, 5), "one more than its share is there");
        assert_eq!(here(&cache), [0, 1, 3, 4]);
        cache.next_pass();
        assert!(add(&mut cache, 5));
        assert_eq!(here(&cache), [1, 3, 4, 5], "no row is wanted any more");
        arrive(&mut cache, 4);
        (6..9).for_each(|row| assert!(add(&mut cache, row)));
        assert!(!add(&mut cache, 9), "all are on their way");
        assert_eq!(here(&cache), [5, 6, 7, 8]);
    }

    #[test]
    fn tables_are_forgotten_one_by_one() {
        let mut cache = cache(&[0, 1]);
        let other = RowKey { block: BlockId(4), row: 0 };
        cache.add(other, 50, 1);
        cache.forget(BlockId(3));
        assert!(here(&cache).is_empty() && cache.row(other).is_some());
        assert_eq!(cache.held, 50);
    }
}
