//! The whole `terrace_store::Store` with its pool of reading threads, while fetches end and the
//! budget changes on other threads: no block is read twice at once, what is leased keeps its bytes,
//! a failure reaches every fetch that waits for the block, and nothing waits for ever.

use super::Model;
use shuttle::thread;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tempfile::TempDir;
use terrace_model::{ByteSize, Extent, FileIndex};
use terrace_store::{BlockId, BlockSpec, DirectChoice, Fetch, IoChoice, Store, StoreConfig, StoreError};

pub const MODELS: &[Model] = &[
    Model::random("store-shared-block", 4000, shared_block),
    Model::random("store-released-elsewhere", 4000, released_elsewhere),
    Model::random("store-failing-read", 1000, failing_read),
    Model::random("store-budget", 4000, budget),
    Model::random("store-closed-while-reading", 4000, closed_while_reading),
];

const BLOCK: usize = 4096;
const BLOCKS: usize = 3;

/// A file whose blocks hold their number in every byte.
fn file() -> &'static Path {
    static FILE: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let make = || {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("blocks");
        (dir, path)
    };
    &FILE.get_or_init(make).1
}

/// Writes the file, unless it is there.
fn write() {
    let len = (BLOCKS * BLOCK) as u64;
    if std::fs::metadata(file()).is_ok_and(|file| file.len() == len) {
        return;
    }
    let bytes: Vec<u8> = (0..BLOCKS).flat_map(|block| [block as u8; BLOCK]).collect();
    std::fs::write(file(), bytes).unwrap();
}

/// Takes the last block out of the file.
fn cut_short() {
    let file = std::fs::OpenOptions::new().write(true).open(file()).unwrap();
    file.set_len(((BLOCKS - 1) * BLOCK) as u64).unwrap();
}

/// Opens a store with slots for `slots` blocks, and one or two threads that read.
fn store(slots: usize, threads: u32) -> Store {
    write();
    let block = |index: usize| BlockSpec {
        extent: Extent { file: FileIndex(0), offset: (index * BLOCK) as u64, len: BLOCK as u64 },
        name: "t".into(),
        layer: None,
        expert: None,
    };
    let config = StoreConfig {
        budget: ByteSize((slots * BLOCK) as u64),
        io: IoChoice::Pread,
        direct: DirectChoice::Off,
        queue_depth: Some(threads),
        request_size: Some(ByteSize::mib(1)),
        huge_pages: false,
        ..StoreConfig::default()
    };
    Store::open(vec![file().into()], (0..BLOCKS).map(block).collect(), config).unwrap()
}

/// Returns whether all accepted blocks arrive with their bytes.
fn read(store: &mut Store, fetch: &mut Fetch) -> Result<usize, StoreError> {
    let mut count = 0;
    while let Some(ready) = store.next(fetch)? {
        holds(ready.data, ready.block);
        count += 1;
    }
    Ok(count)
}

fn holds(data: *const u8, block: BlockId) {
    // SAFETY: the callers have a lease on the block.
    let bytes = unsafe { std::slice::from_raw_parts(data, BLOCK) };
    assert!(bytes.iter().all(|byte| u32::from(*byte) == block.0), "the bytes of another block");
}

/// Two fetches of the same blocks, which arrive in any order; one ends on another thread.
fn shared_block() {
    let mut store = store(2, 2);
    let (mut first, mut second) = (Fetch::new(), Fetch::new());
    let blocks = [BlockId(0), BlockId(1)];
    assert_eq!(store.start(&mut first, &blocks).unwrap(), 2);
    assert_eq!(store.start(&mut second, &blocks[1..]).unwrap(), 1);
    let other = thread::spawn(move || drop(first));
    assert_eq!(read(&mut store, &mut second).unwrap(), 1);
    other.join().unwrap();
    let mut again = Fetch::new();
    assert_eq!(store.start(&mut again, &blocks).unwrap(), 2);
    assert_eq!(read(&mut store, &mut again).unwrap(), 2);
    assert_eq!(store.stats().requests, 2, "a block was read twice");
}

/// Another thread computes with a block and releases it, while the store needs its slot.
fn released_elsewhere() {
    let mut store = store(1, 1);
    let mut first = Fetch::new();
    store.start(&mut first, &[BlockId(0)]).unwrap();
    let ready = store.next(&mut first).unwrap().expect("one block was accepted");
    let data = ready.data as usize;
    let other = thread::spawn(move || {
        holds(data as *const u8, BlockId(0));
        drop(first);
    });
    let mut second = Fetch::new();
    // None while the other block is leased; then its slot is free.
    let accepted = store.start(&mut second, &[BlockId(1)]).unwrap();
    assert_eq!(read(&mut store, &mut second).unwrap(), accepted);
    other.join().unwrap();
    if accepted == 0 {
        assert_eq!(store.start(&mut second, &[BlockId(1)]).unwrap(), 1);
        assert_eq!(read(&mut store, &mut second).unwrap(), 1);
    }
}

/// A read fails for all fetches that wait for it, of which one ends on another thread, and for none
/// of their other blocks.
fn failing_read() {
    let mut store = store(2, 2);
    cut_short();
    let (mut first, mut second, mut third) = (Fetch::new(), Fetch::new(), Fetch::new());
    for fetch in [&mut first, &mut second, &mut third] {
        assert_eq!(store.start(fetch, &[BlockId(1), BlockId(2)]).unwrap(), 2);
    }
    let other = thread::spawn(move || drop(first));
    for fetch in [&mut second, &mut third] {
        let (mut arrived, mut failed) = (0, 0);
        loop {
            match store.next(fetch) {
                Ok(Some(ready)) => {
                    assert_eq!(ready.block, BlockId(1));
                    holds(ready.data, ready.block);
                    arrived += 1;
                }
                Ok(None) => break,
                Err(StoreError::UnexpectedEof { .. }) => failed += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!((arrived, failed), (1, 1), "a fetch gets each of its blocks, or its failure, once");
    }
    drop((second, third));
    other.join().unwrap();
    let mut again = Fetch::new();
    assert_eq!(store.start(&mut again, &[BlockId(0), BlockId(1)]).unwrap(), 2);
    assert_eq!(read(&mut store, &mut again).unwrap(), 2);
}

/// The budget shrinks and grows while blocks are read and leased.
fn budget() {
    let mut store = store(BLOCKS, 1);
    let handle = store.budget_handle(ByteSize(0));
    let other = thread::spawn(move || {
        handle.set(ByteSize(0));
        handle.set(ByteSize(u64::MAX));
    });
    let blocks: Vec<_> = (0..BLOCKS as u32).map(BlockId).collect();
    let mut fetch = Fetch::new();
    let mut done = 0;
    while done < blocks.len() {
        let accepted = store.start(&mut fetch, &blocks[done..]).unwrap();
        assert!(accepted > 0, "nothing is leased");
        assert_eq!(read(&mut store, &mut fetch).unwrap(), accepted);
        store.release(&mut fetch);
        done += accepted;
    }
    other.join().unwrap();
    let stats = store.stats();
    assert!(stats.resident <= stats.budget, "{stats:?}");
}

/// The store is closed while its threads read, and while another thread holds a lease.
fn closed_while_reading() {
    let mut store = store(2, 2);
    let mut fetch = Fetch::new();
    store.start(&mut fetch, &[BlockId(0), BlockId(1)]).unwrap();
    let fetch = Arc::new(fetch);
    let other = {
        let fetch = Arc::clone(&fetch);
        thread::spawn(move || drop(fetch))
    };
    drop(store);
    drop(fetch);
    other.join().unwrap();
}
