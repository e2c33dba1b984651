//! Division of reads among disks of different rates, on a clock that only the reads advance.

use super::Store;
use crate::block::{BlockId, BlockSpec};
use crate::clock::Clock;
use crate::config::StoreConfig;
use crate::fetch::Fetch;
use crate::io::{Completion, Copies, IoEngine, NewCopy, Request};
use crate::limits::QueueDepth;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use terrace_model::{ByteSize, Extent, FileIndex};
use terrace_platform::errors;

const BLOCK: u64 = 1 << 20;
const BLOCKS: u32 = 600;
/// Bytes of all blocks.
const ALL: f64 = (BLOCK * BLOCKS as u64) as f64;

/// Disks that read their requests one after another, each at its rate.
struct Paced {
    /// Bytes per second, and when the disk is done with what it has.
    disks: Vec<(f64, Instant)>,
    /// The disk whose reads fail from some number of its requests on.
    failing: Option<(usize, u32)>,
    clock: Clock,
    held: Vec<(Instant, Completion)>,
    /// Number of requests whose memory the kernel may have to clear.
    fresh: Arc<AtomicU32>,
}

impl IoEngine for Paced {
    fn name(&self) -> &'static str {
        "paced"
    }

    fn push(&mut self, request: Request) -> io::Result<()> {
        let Request { tag, file, target, slow_start, .. } = request;
        self.fresh.fetch_add(u32::from(slow_start), Ordering::Relaxed);
        let (rate, idle) = &mut self.disks[file as usize];
        let (now, len) = (self.clock.now(), target.len);
        *idle = (*idle).max(now) + Duration::from_secs_f64(len as f64 / *rate);
        let result = match &mut self.failing {
            Some((disk, left)) if *disk == file as usize => match left.checked_sub(1) {
                Some(fewer) => {
                    *left = fewer;
                    i32::try_from(len).unwrap()
                }
                None => -errors::INPUT_OUTPUT,
            },
            _ => i32::try_from(len).unwrap(),
        };
        self.held.push((*idle, Completion { tag, result }));
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn set_files(&mut self, _files: Arc<[File]>) -> io::Result<()> {
        Ok(())
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) -> io::Result<()> {
        let first = self.held.iter().map(|(due, _)| *due).min();
        if let (true, Some(first)) = (wait, first) {
            self.clock.sleep(first.saturating_duration_since(self.clock.now()));
        }
        let now = self.clock.now();
        self.held.sort_by_key(|(due, _)| *due);
        let due = self.held.partition_point(|(due, _)| *due <= now);
        out.extend(self.held.drain(..due).map(|(_, completion)| completion));
        Ok(())
    }
}

/// Reads all blocks once, in lists of `list` blocks each of which is waited for as a layer's experts
/// are, from disks of these rates (in 10^9 bytes per second), taken for disks of the rates `thought`.
/// Returns the rate of all together, the share of each disk, and the numbers of errors.
fn read(
    rates: &[f64],
    thought: &[f64],
    list: usize,
    failing: Option<(usize, u32)>,
) -> (f64, Vec<f64>, Vec<u64>) {
    let clock = Clock::still();
    let depth = QueueDepth::fixed(8 * u32::try_from(rates.len()).unwrap());
    let (mut store, _) = store(rates, failing, depth, &clock);
    let copy = |disk: usize| NewCopy { path: format!("disk {disk}").into(), disk };
    store.files.simulate_replicas(rates.len() - 1);
    store.copies =
        Copies::new(vec![copy(0)], (1..rates.len()).map(|disk| (0, copy(disk))).collect(), thought);
    let begin = clock.now();
    let all: Vec<_> = (0..BLOCKS).map(BlockId).collect();
    for list in all.chunks(list) {
        let (mut fetch, mut done) = (Fetch::new(), 0);
        while done < list.len() {
            done += store.start(&mut fetch, &list[done..]).unwrap();
            while store.next(&mut fetch).unwrap().is_some() {}
            store.release(&mut fetch);
        }
    }
    let seconds = (clock.now() - begin).as_secs_f64();
    let copies = store.copies();
    let share = copies.iter().map(|copy| copy.bytes_read as f64 / ALL).collect();
    (ALL / 1e9 / seconds, share, copies.iter().map(|copy| copy.errors).collect())
}

/// Makes a store over disks of these rates, without copies, which counts requests into memory that was never
/// written to.
fn store(
    rates: &[f64],
    failing: Option<(usize, u32)>,
    depth: QueueDepth,
    clock: &Clock,
) -> (Store, Arc<AtomicU32>) {
    let disks = rates.iter().map(|gbps| (gbps * 1e9, clock.now())).collect();
    let fresh = Arc::new(AtomicU32::new(0));
    let engine = Paced { disks, failing, clock: clock.clone(), held: Vec::new(), fresh: Arc::clone(&fresh) };
    let block = |index: u32| BlockSpec {
        extent: Extent { file: FileIndex(0), offset: u64::from(index) * BLOCK, len: BLOCK },
        name: "t".into(),
        layer: None,
        expert: None,
    };
    let config = StoreConfig {
        budget: ByteSize(64 * BLOCK),
        huge_pages: false,
        clock: clock.clone(),
        ..StoreConfig::default()
    };
    let blocks = (0..BLOCKS).map(block).collect();
    let lengths = [BLOCK * u64::from(BLOCKS)];
    (Store::over(Box::new(engine), &lengths, 4096, depth, blocks, &config), fresh)
}

/// Asserts that two numbers differ by at most a share.
fn near(found: f64, expected: f64, within: f64) {
    assert!((found / expected - 1.0).abs() <= within, "{found} is not near {expected}");
}

#[test]
fn disks_read_in_proportion_to_their_rates() {
    // A long queue.
    for rates in [&[2.0, 2.0][..], &[2.0, 1.0], &[3.0, 1.0], &[2.0, 1.5, 1.0]] {
        let (gbps, share, errors) = read(rates, rates, 60, None);
        let sum: f64 = rates.iter().sum();
        near(gbps, sum, 0.05);
        for (share, rate) in share.iter().zip(rates) {
            near(*share, rate / sum, 0.05);
        }
        assert!(errors.iter().all(|errors| *errors == 0));
    }
    // A layer's eight experts, with nothing read meanwhile: they cannot be divided better than six
    // to two.
    let (gbps, share, _) = read(&[3.0, 1.0], &[3.0, 1.0], 8, None);
    near(gbps, 4.0, 0.01);
    near(share[1], 0.25, 0.01);
    let (alone, _, _) = read(&[3.0, 1e-9], &[3.0, 1e-9], 8, None);
    near(alone, 3.0, 0.01);
}

/// Reads all blocks once, in lists of 60, from a disk with 2 GB/s, and computes for 1 ms with each of those that
/// have arrived, in turns. Returns the rate.
fn read_and_compute(depth: QueueDepth) -> f64 {
    let clock = Clock::still();
    let (mut store, _) = store(&[2.0], None, depth, &clock);
    let begin = clock.now();
    let all: Vec<_> = (0..BLOCKS).map(BlockId).collect();
    for list in all.chunks(60) {
        let mut fetch = Fetch::new();
        assert_eq!(store.start(&mut fetch, list).unwrap(), list.len());
        while store.next(&mut fetch).unwrap().is_some() {
            let mut arrived = 1;
            while store.try_next(&mut fetch).unwrap().is_some() {
                arrived += 1;
            }
            // No oftener than a matrix of many tokens lets a consumer ask again.
            clock.sleep(Duration::from_millis(arrived.max(10)));
        }
        store.release(&mut fetch);
    }
    ALL / 1e9 / (clock.now() - begin).as_secs_f64()
}

/// Computing takes twice as long as reading: a disk that has enough to do is waited for at the beginning of a
/// list, and one that reads little meanwhile all the time.
#[test]
fn a_disk_has_enough_to_do_while_the_consumer_computes() {
    let computing = BLOCK as f64 / 1e6;
    let [small, growing, large] = [QueueDepth::fixed(4), QueueDepth::growing(4), QueueDepth::fixed(16)]
        .map(|depth| read_and_compute(depth) / computing);
    assert!(small < 0.8 * large, "{small} of the rate of computing, {large} with enough");
    near(growing, large, 0.05);
}

/// Rates that are not known, or have changed, cost little while the queue is long, because a disk
/// that is slower than expected is not done with what it has.
#[test]
fn wrong_rates_cost_little_while_there_is_enough_to_read() {
    let (gbps, _, _) = read(&[2.0, 1.0], &[1.0, 1.0], 60, None);
    near(gbps, 3.0, 0.2);
    let (gbps, _, _) = read(&[2.0, 2.0], &[2.0, 1.0], 60, None);
    near(gbps, 4.0, 0.2);
}

#[test]
fn a_disk_that_fails_leaves_its_share_to_the_others() {
    for disk in [0, 1] {
        let (gbps, share, errors) = read(&[2.0, 1.0], &[2.0, 1.0], 20, Some((disk, 100)));
        let left = [1.0, 2.0][disk];
        assert!(gbps < 3.0 && gbps > left, "{gbps}");
        near(share.iter().sum(), 1.0, 1e-9);
        near(share[disk], 100.0 / f64::from(BLOCKS), 1e-9);
        // What it had been sent fails, and nothing after it.
        assert!(errors[disk] > 0 && errors[disk] <= 16 && errors[1 - disk] == 0, "{errors:?}");
    }
}

#[test]
fn the_engine_is_told_what_memory_is_new() {
    let clock = Clock::still();
    let (mut store, fresh) = store(&[2.0], None, QueueDepth::fixed(8), &clock);
    let mut read = |blocks: std::ops::Range<u32>| {
        let (list, mut fetch) = (blocks.map(BlockId).collect::<Vec<_>>(), Fetch::new());
        assert_eq!(store.start(&mut fetch, &list).unwrap(), list.len());
        while store.next(&mut fetch).unwrap().is_some() {}
        store.release(&mut fetch);
        fresh.swap(0, Ordering::Relaxed)
    };
    assert_eq!([read(0..40), read(40..64), read(64..100)], [40, 24, 0]);
}
