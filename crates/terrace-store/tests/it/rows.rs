//! Tables read by row: each row has the file's bytes, few requests read them, and what is read again
//! comes from RAM.

use crate::common::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;
use terrace_model::{ByteSize, Extent, FileIndex};
use terrace_store::checksums::Unit;
use terrace_store::{BlockId, RowTable, Store, StoreConfig, StoreError};

const FILE: usize = 1 << 20;
const TABLE: BlockId = BlockId(0);

/// A store of one table, of rows of `row` bytes from offset `from` on to the end of the file.
fn open(path: &Path, from: u64, row: u64, config: StoreConfig) -> (Store, RowTable, Extent) {
    let extent = extent(from, (FILE as u64 - from) / row * row);
    let store = Store::open(vec![path.to_owned()], specs(&[extent]), config).unwrap();
    (store, RowTable { block: TABLE, row }, extent)
}

/// Reads rows, and returns them in the order of the list.
fn read(store: &mut Store, table: RowTable, rows: &[u64]) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut all = vec![Vec::new(); rows.len()];
    store.read_rows(table, rows.iter().copied(), &mut |place, bytes| {
        assert!(all[place].is_empty(), "place {place} twice");
        all[place] = bytes.to_vec();
    })?;
    Ok(all)
}

/// Reads rows and compares them with the file's bytes.
fn check(store: &mut Store, table: RowTable, rows: &[u64], oracle: &[u8], what: &str) {
    let read = read(store, table, rows).unwrap();
    let extent = store.spec(table.block).extent;
    for (bytes, row) in read.iter().zip(rows) {
        let at = (extent.offset + row * table.row) as usize;
        assert!(bytes == &oracle[at..at + table.row as usize], "{what}: row {row}");
    }
}

/// Number of blocks of 4 KiB that the rows lie in.
fn blocks_of(extent: Extent, row: u64, rows: impl IntoIterator<Item = u64>) -> u64 {
    let blocks = |r: u64| {
        let from = extent.offset + r * row;
        from / 4096..=(from + row - 1) / 4096
    };
    rows.into_iter().flat_map(blocks).collect::<BTreeSet<u64>>().len() as u64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Whatever is asked for, ahead or not, with little memory or enough, by every engine.
    #[test]
    fn rows_are_the_files(
        from in 0_u64..5000,
        row in prop_oneof![1_u64..200, 500_u64..9000, 100_000_u64..300_000],
        picked in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..60),
        kept in prop_oneof![Just(0_u64), 4_000_u64..60_000, Just(4 << 20)],
        depth in 1_u32..9,
        request_pages in 1_u64..80,
        config in prop::sample::select(harmless()),
    ) {
        let dir = dir();
        let (path, oracle) = file(dir.path(), "model", FILE);
        let config = StoreConfig {
            rows: ByteSize(kept),
            queue_depth: Some(depth),
            request_size: Some(ByteSize::kib(4 * request_pages)),
            ..config
        };
        let what = label(&config);
        let (mut store, table, extent) = open(&path, from, row, config);
        let count = (extent.len / row) as usize;
        for passes in picked.chunks(20) {
            store.next_token();
            let (rows, others): (Vec<u64>, Vec<u64>) =
                passes.iter().map(|(a, b)| (a.index(count) as u64, b.index(2 * count) as u64)).unzip();
            // Some of these are used, some are not, and some do not exist.
            store.expect_rows(table, others.into_iter().chain(rows.iter().copied().step_by(2))).unwrap();
            check(&mut store, table, &rows, &oracle, &what);
            check(&mut store, table, &rows, &oracle, &what);
        }
        let stats = store.stats().rows;
        prop_assert_eq!(stats.asked, 2 * picked.len() as u64);
        prop_assert!(stats.distinct <= stats.asked);
    }
}

#[test]
fn a_prompt_reads_no_block_twice() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    for config in engines() {
        let what = label(&config);
        for ahead in [false, true] {
            let (mut store, table, extent) =
                open(&path, 1234, 144, StoreConfig { rows: ByteSize::mib(1), ..config.clone() });
            let align = store.engine().alignment;
            let rows: Vec<u64> = (0..1000).map(|i| i * i * 7919 % 7000).collect();
            let distinct: BTreeSet<u64> = rows.iter().copied().collect();
            if ahead {
                store.expect_rows(table, rows.iter().copied()).unwrap();
            }
            check(&mut store, table, &rows, &oracle, &what);
            let stats = store.stats();
            let blocks = blocks_of(extent, 144, rows.iter().copied());
            assert!(stats.rows.requests <= blocks, "{what}: {:?}, {blocks} blocks", stats.rows);
            assert!(
                stats.rows.bytes.0 * 10 <= blocks * 4096 * 13,
                "{what}: {:?}, {blocks} blocks",
                stats.rows
            );
            assert_eq!((stats.requests, stats.bytes_read), (stats.rows.requests, stats.rows.bytes));
            assert_eq!((stats.rows.asked, stats.rows.distinct), (1000, distinct.len() as u64));
            assert_eq!((stats.rows.read, stats.rows.cached()), (distinct.len() as u64, 0), "{what} {align}");
            // All of it is in RAM now, one by one as well.
            check(&mut store, table, &rows, &oracle, &what);
            rows.iter().take(50).for_each(|row| check(&mut store, table, &[*row], &oracle, &what));
            let again = store.stats().rows;
            assert_eq!((again.requests, again.read), (stats.rows.requests, stats.rows.read), "{what}");
        }
    }
}

/// The requests of rows that were asked for ahead run while the consumer does something else.
#[test]
fn rows_asked_for_ahead_cost_no_wait() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let Some(config) = engines().into_iter().next() else { return };
    let config = waited_for(config, "latency=20ms@1..");
    let (mut store, table, _) = open(&path, 64, 5000, config);
    let rows = [3, 90, 91, 150];
    store.expect_rows(table, rows.into_iter()).unwrap();
    assert_eq!(store.stats().rows.requests, 3, "neighbours are one request");
    let waits = store.stats().stall;
    assert_eq!(waits.as_millis(), 0);
    check(&mut store, table, &rows, &oracle, "ahead");
    let stats = store.stats();
    assert_eq!((stats.stall.as_millis(), stats.rows.stall.as_millis()), (20, 20), "all at once");
    store.next_token();
    check(&mut store, table, &rows, &oracle, "cached");
    assert_eq!(store.stats().stall.as_millis(), 20);
}

#[test]
fn rows_that_do_not_exist_are_refused() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    for config in engines() {
        let what = label(&config);
        let (mut store, table, extent) = open(&path, 0, 1000, config);
        let count = extent.len / 1000;
        store.expect_rows(table, [count, u64::MAX].into_iter()).unwrap();
        let error = read(&mut store, table, &[1, count]).unwrap_err();
        assert!(matches!(error, StoreError::Misuse(_)), "{what}: {error}");
        let other = RowTable { block: BlockId(1), ..table };
        assert!(matches!(store.expect_rows(other, std::iter::once(0)), Err(StoreError::Misuse(_))));
        assert_eq!(store.stats().requests, 0);
        check(&mut store, table, &[count - 1, 0], &oracle, &what);
    }
}

#[test]
fn failures_are_the_readers_and_pass() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    for config in engines() {
        // One failure is read again.
        let faults = |plan: &str| StoreConfig { faults: Some(plan.parse().unwrap()), ..config.clone() };
        let (mut store, table, _) = open(&path, 64, 3000, faults("eio@1"));
        store.expect_rows(table, [5, 6, 100].into_iter()).unwrap();
        check(&mut store, table, &[100, 6, 5], &oracle, &label(&config));
        // A bad sector fails the rows in it, always, with the row's place.
        let bad = 64 + 5 * 3000 + 1500;
        let (mut store, table, _) = open(&path, 64, 3000, faults(&format!("eio@bytes:{bad}..{}", bad + 1)));
        for _ in 0..2 {
            store.expect_rows(table, [5, 100].into_iter()).unwrap();
            check(&mut store, table, &[100, 200], &oracle, &label(&config));
            match read(&mut store, table, &[5]).unwrap_err() {
                StoreError::Read { offset, len, tensor, .. } => {
                    assert_eq!((offset, len), (64 + 5 * 3000, 3000));
                    assert!(tensor.contains("ffn_up_exps"), "{tensor}");
                }
                error => panic!("{}: {error}", label(&config)),
            }
            store.next_token();
        }
    }
}

/// Rows have the checksums of the file as it was at first.
#[test]
fn wrong_bytes_are_healed_or_told() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let row = 3000;
    let count = FILE as u64 / row;
    let unit = Unit { name: "table".into(), extent: extent(0, count * row), parts: count };
    for config in engines() {
        let what = label(&config);
        let sums = {
            let mut store = Store::open(vec![path.clone()], Vec::new(), config.clone()).unwrap();
            store
                .checksums(std::slice::from_ref(&unit), &mut |_| std::ops::ControlFlow::Continue(()))
                .unwrap()
        };
        let verifying = |faults: &str| {
            let config = StoreConfig { faults: Some(faults.parse().unwrap()), ..config.clone() };
            let (mut store, table, _) = open(&path, 0, row, config);
            store.verify(std::slice::from_ref(&unit), &sums).unwrap();
            (store, table)
        };
        let bad = 40 * row + 7;
        let (mut store, table) = verifying(&format!("flip@bytes:{bad}..{}", bad + 1));
        store.expect_rows(table, [39, 40, 41].into_iter()).unwrap();
        check(&mut store, table, &[41, 39], &oracle, &what);
        let error = read(&mut store, table, &[40]).unwrap_err();
        assert!(
            matches!(error, StoreError::Checksum { offset, .. } if offset == 40 * row),
            "{what}: {error}"
        );
        let stats = store.stats();
        assert!(stats.mismatches >= 2 && stats.healed == 0 && stats.verified >= 3, "{what}: {stats:?}");

        // The first request may flip a byte beside the row.
        let (mut store, table) = verifying("flip@1");
        check(&mut store, table, &[7, 7, 300], &oracle, &what);
        let stats = store.stats();
        assert_eq!(stats.mismatches, stats.healed, "{what}: {stats:?}");
        assert!(stats.verified >= 2, "{what}: {stats:?}");
    }
}

/// A table that becomes another one has no row of the old one.
#[test]
fn replaced_tables_forget_their_rows() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    for config in engines() {
        let what = label(&config);
        let config = StoreConfig { rows: ByteSize::mib(4), ..config };
        let (mut store, table, _) = open(&path, 64, 3000, config);
        let rows = [1, 2, 50, 51, 120];
        check(&mut store, table, &rows, &oracle, &what);
        let (other, bytes) = file(dir.path(), "other", FILE / 2);
        let to: FileIndex = store.add_file(other).unwrap();
        // Some are on their way.
        store.expect_rows(table, 60..90).unwrap();
        store.replace(&[(TABLE, Extent { file: to, offset: 1000, len: 150 * 3000 })]).unwrap();
        check(&mut store, table, &rows, &bytes, &what);
        check(&mut store, table, &(55..95).collect::<Vec<_>>(), &bytes, &what);
        store.replace(&[(TABLE, extent(64, 150 * 3000))]).unwrap();
        store.remove_file(to).unwrap();
        check(&mut store, table, &rows, &oracle, &what);
    }
}
