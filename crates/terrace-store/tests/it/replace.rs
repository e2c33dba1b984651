//! Blocks replaced by bytes of another file and length while the store reads.

use crate::common::{dir, engines, extent, fetch_one, file, label, row, specs};
use terrace_model::{ByteSize, Extent, FileIndex};
use terrace_store::{BlockId, Fetch, Store, StoreConfig, StoreError};

const BLOCK: u64 = 70_000;

/// Returns the next number of a pseudo-random sequence, in `0..n`.
fn pick(state: &mut u64, n: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*state >> 33) % n
}

#[test]
fn every_block_reads_as_what_it_was_last_made() {
    for config in engines() {
        let dir = dir();
        let (path, bytes) = file(dir.path(), "model", 1 << 20);
        let extents = row(100, BLOCK, 10);
        // There are slots for four of the ten blocks, so most fetches read.
        let config = StoreConfig { budget: ByteSize(4 * 80_000), speculation: ByteSize(160_000), ..config };
        let mut store = Store::open(vec![path], specs(&extents), config.clone()).unwrap();
        let slice = |bytes: &[u8], e: Extent| bytes[e.offset as usize..e.end() as usize].to_vec();
        let mut truth: Vec<Vec<u8>> = extents.iter().map(|e| slice(&bytes, *e)).collect();
        let mut donors: Vec<(FileIndex, Vec<u8>, u32)> = Vec::new();
        let mut home: Vec<Option<usize>> = vec![None; 10];
        let mut state = 7;
        for round in 0..120 {
            let block = pick(&mut state, 10) as usize;
            if round % 3 == 0 {
                // A read that no fetch waits for is in flight.
                store.speculate(&[BlockId(block as u32), BlockId((block as u32 + 1) % 10)]).unwrap();
            }
            if round % 20 == 5 {
                store.fill((0..10).map(BlockId).collect()).unwrap();
            }
            match pick(&mut state, 3) {
                0 => {
                    let name = format!("donor{round}");
                    let (path, bytes) = file(dir.path(), &name, 200_000 + round);
                    let index = store.add_file(path).unwrap();
                    donors.push((index, bytes, 0));
                    let (offset, len) = (pick(&mut state, 100_000), 1 + pick(&mut state, 75_000));
                    let to = Extent { file: index, offset, len };
                    store.replace(&[(BlockId(block as u32), to)]).unwrap();
                    let donor = donors.len() - 1;
                    truth[block] = slice(&donors[donor].1, to);
                    donors[donor].2 += 1;
                    if let Some(before) = home[block].replace(donor) {
                        donors[before].2 -= 1;
                    }
                }
                1 => {
                    store.replace(&[(BlockId(block as u32), extents[block])]).unwrap();
                    truth[block] = slice(&bytes, extents[block]);
                    if let Some(before) = home[block].take() {
                        donors[before].2 -= 1;
                        if donors[before].2 == 0 {
                            store.remove_file(donors[before].0).unwrap();
                        }
                    }
                }
                _ => {}
            }
            let other = pick(&mut state, 10) as usize;
            for block in [block, other] {
                let got = fetch_one(&mut store, block as u32).unwrap();
                assert!(got == truth[block], "{}, round {round}, block {block}", label(&config));
            }
        }
    }
}

#[test]
fn descriptors_do_not_grow_with_the_number_of_replacements() {
    let dir = dir();
    let (path, _) = file(dir.path(), "model", 400_000);
    let (donor, bytes) = file(dir.path(), "donor", 400_000);
    let mut store = Store::open(
        vec![path],
        specs(&row(0, BLOCK, 2)),
        StoreConfig { budget: ByteSize::mib(1), ..StoreConfig::default() },
    )
    .unwrap();
    let mut seen = Vec::new();
    for _ in 0..50 {
        let index = store.add_file(donor.clone()).unwrap();
        seen.push(index);
        store.replace(&[(BlockId(1), Extent { file: index, offset: 3, len: 90_000 })]).unwrap();
        assert_eq!(fetch_one(&mut store, 1).unwrap(), bytes[3..90_003]);
        assert!(matches!(store.remove_file(index), Err(StoreError::Misuse(_))), "a block is in it");
        store.replace(&[(BlockId(1), extent(BLOCK, BLOCK))]).unwrap();
        store.remove_file(index).unwrap();
    }
    assert!(seen.iter().all(|index| *index == seen[0]), "an index that is free is used again: {seen:?}");
}

#[test]
fn a_refused_change_changes_nothing() {
    for config in engines() {
        let dir = dir();
        let (path, bytes) = file(dir.path(), "model", 1 << 20);
        let config = StoreConfig { budget: ByteSize(300_000), ..config };
        let mut store = Store::open(vec![path.clone()], specs(&row(0, BLOCK, 10)), config).unwrap();
        let good = (BlockId(0), extent(500_000, BLOCK));
        let too_long = store.replace(&[good, (BlockId(1), extent(0, 400_000))]).unwrap_err();
        assert!(matches!(too_long, StoreError::BudgetTooSmall { .. }), "{too_long}");
        let outside = store.replace(&[good, (BlockId(1), extent(1 << 20, 10))]).unwrap_err();
        assert!(matches!(outside, StoreError::OutsideFile { .. }), "{outside}");
        let mut fetch = Fetch::new();
        store.start(&mut fetch, &[BlockId(1)]).unwrap();
        let leased = store.replace(&[good, (BlockId(1), extent(0, 10))]).unwrap_err();
        assert!(matches!(leased, StoreError::Misuse(_)), "{leased}");
        store.release(&mut fetch);
        assert!(store.add_file(dir.path().join("missing")).is_err());
        assert!(store.add_file(dir.path().to_owned()).is_err(), "a directory");
        assert_eq!(fetch_one(&mut store, 0).unwrap(), bytes[..BLOCK as usize]);
    }
}
