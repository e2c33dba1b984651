//! Shared by the tests: files of known bytes, and all ways to read them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use terrace_model::{ByteSize, ExpertId, Extent, FileIndex};
use terrace_store::{
    BlockId, BlockSpec, Clock, DirectChoice, Fetch, IoChoice, Ready, Replica, Store, StoreConfig, StoreError,
    check_io_uring,
};

/// Makes a directory on a real disk, because direct I/O may not work where temporary files are.
pub fn dir() -> TempDir {
    TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Returns pseudo-random bytes, different for each seed.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Writes a file of noise, and returns its path and its bytes.
pub fn file(dir: &Path, name: &str, len: usize) -> (PathBuf, Vec<u8>) {
    let bytes = noise(len, len as u64 + name.len() as u64);
    let path = dir.join(name);
    fs::write(&path, &bytes).unwrap();
    // A direct read of dirty pages would first write them back, in the middle of a test.
    fs::File::open(&path).unwrap().sync_all().unwrap();
    (path, bytes)
}

/// Copies the file, and returns the copy as a replica of the store's only file.
pub fn replica(path: &Path, number: u32) -> Replica {
    let copy = path.with_extension(format!("copy-{number}"));
    fs::copy(path, &copy).unwrap();
    fs::File::open(&copy).unwrap().sync_all().unwrap();
    Replica { file: FileIndex(0), path: copy }
}

/// Adds each configuration once more with two replicas of the file.
pub fn replicated(path: &Path, configs: Vec<StoreConfig>) -> Vec<StoreConfig> {
    let replicas = vec![replica(path, 1), replica(path, 2)];
    let with = |config: &StoreConfig| StoreConfig { replicas: replicas.clone(), ..config.clone() };
    let more: Vec<_> = configs.iter().map(with).collect();
    configs.into_iter().chain(more).collect()
}

pub fn extent(offset: u64, len: u64) -> Extent {
    Extent { file: FileIndex(0), offset, len }
}

pub fn specs(extents: &[Extent]) -> Vec<BlockSpec> {
    let name: Arc<str> = "blk.3.ffn_up_exps.weight".into();
    let spec = |(i, extent): (usize, &Extent)| BlockSpec {
        layer: None,
        extent: *extent,
        name: Arc::clone(&name),
        expert: Some(ExpertId(i as u32)),
    };
    extents.iter().enumerate().map(spec).collect()
}

/// Returns extents of consecutive blocks of `len` bytes, starting at offset `from`.
pub fn row(from: u64, len: u64, count: u64) -> Vec<Extent> {
    (0..count).map(|i| extent(from + i * len, len)).collect()
}

/// Adds faults whose delays pass only while the store waits: nothing arrives between two calls,
/// however long the machine takes between them.
pub fn waited_for(config: StoreConfig, faults: &str) -> StoreConfig {
    StoreConfig { faults: Some(faults.parse().unwrap()), clock: Clock::still(), ..config }
}

/// Returns a configuration for every engine of this system, direct and buffered. Emulators of Linux have no rings;
/// `errors::the_engine_that_was_asked_for_is_the_one` fails where that is not expected.
pub fn engines() -> Vec<StoreConfig> {
    let mut all = Vec::new();
    let (ways, directs): (&[_], &[_]) = match cfg!(feature = "portable") {
        true => (&[IoChoice::Pread], &[DirectChoice::Off]),
        false => (&[IoChoice::Uring, IoChoice::Pread], &[DirectChoice::On, DirectChoice::Off]),
    };
    let rings = check_io_uring().is_ok();
    for &io in ways.iter().filter(|io| rings || **io != IoChoice::Uring) {
        for &direct in directs {
            all.push(StoreConfig { io, direct, budget: ByteSize::mib(4), ..StoreConfig::default() });
        }
    }
    all
}

/// Faults that a consumer must not notice.
pub const HARMLESS: [&str; 5] = [
    "short@1..",
    "eintr@1..4,eagain@6..9,eintr@11",
    "latency=300us@2..30,short@3..9",
    "short@2..5,eintr@3,latency=100us@1..4",
    "eagain@1..40,ecanceled@41..50",
];

/// Returns every engine without faults, and with each of the harmless ones.
pub fn harmless() -> Vec<StoreConfig> {
    let mut all = engines();
    for config in engines() {
        for faults in HARMLESS {
            all.push(StoreConfig { faults: Some(faults.parse().unwrap()), ..config.clone() });
        }
    }
    all
}

pub fn label(config: &StoreConfig) -> String {
    let faults = config.faults.as_ref().map(ToString::to_string).unwrap_or_default();
    let replicas = config.replicas.len();
    format!("{} direct={} faults={faults} replicas={replicas}", config.io, config.direct)
}

/// Returns the bytes that a consumer sees.
pub fn bytes(ready: &Ready) -> &[u8] {
    // SAFETY: callers use the bytes before they release the fetch, which holds the lease on them.
    unsafe { std::slice::from_raw_parts(ready.data, ready.len) }
}

/// Fetches `blocks` in as many waves as needed, checks every byte, and returns the number of waves.
pub fn fetch_all(store: &mut Store, oracle: &[u8], extents: &[Extent], blocks: &[BlockId]) -> usize {
    let mut fetch = Fetch::new();
    let mut done = 0;
    let mut waves = 0;
    while done < blocks.len() {
        let wave = &blocks[done..];
        let accepted = store.start(&mut fetch, wave).unwrap();
        assert!(accepted > 0 && accepted <= wave.len());
        let mut seen = vec![false; accepted];
        while let Some(ready) = store.next(&mut fetch).unwrap() {
            assert!(!std::mem::replace(&mut seen[ready.index], true), "index {} twice", ready.index);
            assert_eq!(ready.block, wave[ready.index]);
            let Extent { offset, len, .. } = extents[ready.block.index()];
            assert!(bytes(&ready) == &oracle[offset as usize..][..len as usize], "{:?} differs", ready.block);
            if offset % 32 == 0 {
                assert_eq!(ready.data as usize % 32, 0);
            }
        }
        assert!(seen.iter().all(|seen| *seen), "every accepted block is returned");
        let stats = store.stats();
        assert!(stats.resident <= stats.budget, "{stats:?}");
        store.release(&mut fetch);
        done += accepted;
        waves += 1;
    }
    waves
}

/// Fetches one block, and returns its bytes or the error.
pub fn fetch_one(store: &mut Store, block: u32) -> Result<Vec<u8>, StoreError> {
    let mut fetch = Fetch::new();
    assert_eq!(store.start(&mut fetch, &[BlockId(block)])?, 1);
    let ready = store.next(&mut fetch)?.expect("one block was accepted");
    Ok(bytes(&ready).to_vec())
}

pub fn ids(numbers: impl IntoIterator<Item = u32>) -> Vec<BlockId> {
    numbers.into_iter().map(BlockId).collect()
}
