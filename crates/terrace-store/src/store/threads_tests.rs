//! A store with threads that read a file, and all that it does with memory: the arena, the caller's,
//! moved and returned. Without system calls that Miri does not know, so `scripts/miri` runs it.

use super::Store;
use crate::block::{BlockId, BlockSpec};
use crate::clock::Clock;
use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::fetch::{Fetch, Ready};
use crate::io::{Faulty, IoEngine, PreadPool};
use crate::limits::QueueDepth;
use crate::purpose::Use;
use crate::store::ReadInto;
use std::fs::File;
use std::ops::ControlFlow;
use std::sync::Arc;
use tempfile::TempDir;
use terrace_model::{ByteSize, Extent, FileIndex};

/// Bytes of a block: not whole pages, so that blocks share pages of the file.
const BLOCK: usize = 5000;
const BLOCKS: usize = 5;
/// Blocks whose slots the arena has, of two pages each.
const SLOTS: u64 = 3;

/// The byte at an offset of the file.
fn byte(offset: usize) -> u8 {
    (offset / 7 % 251) as u8
}

/// A store that reads with two threads, in pieces of a page, and the directory of its file.
fn store(align: u64, faults: Option<&str>) -> (TempDir, Store) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("model");
    let bytes: Vec<u8> = (0..BLOCK * BLOCKS).map(byte).collect();
    std::fs::write(&path, &bytes).unwrap();
    let block = |index: usize| BlockSpec {
        extent: extent(index * BLOCK, BLOCK),
        name: "t".into(),
        layer: None,
        expert: None,
    };
    let config = StoreConfig {
        budget: ByteSize(SLOTS * 2 * 4096),
        request_size: Some(ByteSize(4096)),
        speculation: ByteSize(1 << 20),
        huge_pages: false,
        ..StoreConfig::default()
    };
    let depth = QueueDepth::fixed(2);
    let mut engine: Box<dyn IoEngine> =
        Box::new(PreadPool::new(Arc::new([File::open(path).unwrap()]), depth).unwrap());
    if let Some(faults) = faults {
        let plan = faults.parse().unwrap();
        engine = Box::new(Faulty::new(engine, plan, align as usize, depth.most, Clock::still()));
    }
    let blocks = (0..BLOCKS).map(block).collect();
    (dir, Store::over(engine, &[bytes.len() as u64], align, depth, blocks, &config))
}

fn extent(offset: usize, len: usize) -> Extent {
    Extent { file: FileIndex(0), offset: offset as u64, len: len as u64 }
}

/// Bytes from one that is checked to the next: Miri is slow, and steps over no piece of a read.
const STEP: usize = if cfg!(miri) { 61 } else { 1 };

/// Checks the bytes of a block that is leased.
fn check(ready: &Ready) {
    // SAFETY: the callers hold a lease on it.
    let bytes = unsafe { std::slice::from_raw_parts(ready.data, ready.len) };
    let from = ready.block.index() * BLOCK;
    let mut found = bytes.iter().enumerate().step_by(STEP);
    assert!(found.all(|(at, found)| *found == byte(from + at)), "{:?}", ready.block);
}

/// Reads all blocks in turn, in as many portions as it takes.
fn read_all(store: &mut Store) {
    let blocks: Vec<_> = (0..BLOCKS as u32).map(BlockId).collect();
    let (mut fetch, mut done) = (Fetch::new(), 0);
    while done < blocks.len() {
        let accepted = store.start(&mut fetch, &blocks[done..]).unwrap();
        assert!(accepted > 0);
        let mut arrived = 0;
        while let Some(ready) = store.next(&mut fetch).unwrap() {
            check(&ready);
            arrived += 1;
        }
        assert_eq!(arrived, accepted);
        store.release(&mut fetch);
        done += accepted;
    }
}

#[test]
fn blocks_arrive_with_their_bytes() {
    for align in [1, 512] {
        for faults in [None, Some("short@1.."), Some("eintr@2,eagain@4..6,short@7")] {
            let (_dir, mut store) = store(align, faults);
            read_all(&mut store);
            read_all(&mut store);
        }
    }
}

#[test]
fn the_callers_memory_is_filled_beside_a_fetch() {
    for align in [1, 512] {
        let (_dir, mut store) = store(align, None);
        let mut fetch = Fetch::new();
        assert_eq!(store.start(&mut fetch, &[BlockId(1)]).unwrap(), 1);
        let (mut first, mut second) = (vec![0; 9000], [0; 3]);
        let mut reads = [
            ReadInto { extent: extent(1024, first.len()), dst: &mut first, name: "first" },
            ReadInto { extent: extent(7, second.len()), dst: &mut second, name: "second" },
        ];
        store.read_into(&mut reads, &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(first.iter().enumerate().all(|(at, found)| *found == byte(1024 + at)));
        assert_eq!(second, [byte(7), byte(8), byte(9)]);
        check(&store.next(&mut fetch).unwrap().unwrap());
        let mut copy = vec![0; BLOCK];
        assert!(store.copy_resident(BlockId(1), &mut copy));
        assert!(copy.iter().enumerate().all(|(at, found)| *found == byte(BLOCK + at)));
    }
}

#[test]
fn blocks_move_and_their_memory_is_returned() {
    let (_dir, mut store) = store(1, None);
    let budget = store.budget_handle(ByteSize(0));
    let mut fetch = Fetch::new();
    assert_eq!(store.start(&mut fetch, &[0, 1, 2].map(BlockId)).unwrap(), 3);
    while let Some(ready) = store.next(&mut fetch).unwrap() {
        check(&ready);
    }
    store.release(&mut fetch);
    // The block after the limit takes the place of one before it that is not leased.
    assert_eq!(store.start(&mut fetch, &[BlockId(1)]).unwrap(), 1);
    let other = std::thread::spawn(move || budget.set(ByteSize(2 * 2 * 4096 + 4096)));
    other.join().unwrap();
    store.poll().unwrap();
    check(&store.next(&mut fetch).unwrap().unwrap());
    store.release(&mut fetch);
    read_all(&mut store);
    store.budget_handle(ByteSize(0)).set(ByteSize(u64::MAX));
    read_all(&mut store);
    assert!(store.stats().shrinks == 1 && store.stats().grows == 1);
}

#[test]
fn a_failure_reaches_all_who_wait_and_others_go_on() {
    let (_dir, mut store) = store(1, Some("eio@bytes:5000..10000"));
    let (mut first, mut second) = (Fetch::new(), Fetch::new());
    for fetch in [&mut first, &mut second] {
        assert_eq!(store.start(fetch, &[BlockId(0), BlockId(1)]).unwrap(), 2);
    }
    for fetch in [&mut first, &mut second] {
        let mut failed = 0;
        loop {
            match store.next(fetch) {
                Ok(Some(ready)) => check(&ready),
                Ok(None) => break,
                Err(StoreError::Read { .. }) => failed += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(failed, 1);
    }
}

/// A block, and the fetch that holds it.
struct Leased(Ready, Fetch);

// SAFETY: the block's bytes stay where they are for as long as the fetch is held and the store lives;
// the test joins the thread before it drops the store.
unsafe impl Send for Leased {}

impl Leased {
    fn use_up(self) {
        let Self(ready, fetch) = self;
        check(&ready);
        drop(fetch);
    }
}

#[test]
fn fetches_end_on_other_threads_and_stores_while_reading() {
    let (_dir, mut store) = store(1, None);
    let mut fetch = Fetch::new();
    assert_eq!(store.start_as(&mut fetch, &[BlockId(0), BlockId(1)], Use::Sweep).unwrap(), 2);
    let ready = store.next(&mut fetch).unwrap().unwrap();
    let leased = Leased(ready, fetch);
    let other = std::thread::spawn(move || leased.use_up());
    let mut more = Fetch::new();
    let accepted = store.start(&mut more, &[2, 3, 4].map(BlockId)).unwrap();
    for _ in 0..accepted {
        check(&store.next(&mut more).unwrap().unwrap());
    }
    store.release(&mut more);
    store.start(&mut more, &[BlockId(0)]).unwrap();
    // The bytes are the store's; a fetch may end after it.
    other.join().unwrap();
    drop(store);
    drop(more);
}
