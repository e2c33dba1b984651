//! What a consumer may rely on with every engine, direct and buffered, with harmless faults, and with
//! replicas.

use crate::common::*;
use proptest::prelude::*;
use std::ops::ControlFlow;
use terrace_model::{ByteSize, Extent};
use terrace_store::{BlockId, Fetch, ReadInto, Store, StoreConfig, StoreError};

const FILE: usize = 300_007;

fn any_extent() -> impl Strategy<Value = Extent> {
    (0..FILE as u64 - 1, 1u64..60_000).prop_map(|(offset, len)| extent(offset, len.min(FILE as u64 - offset)))
}

/// The kernel cancels what a thread has asked for, and has not begun, when that thread ends.
#[test]
fn a_thread_that_ends_takes_no_read_along() {
    const BLOCK: usize = 1 << 20;
    const COUNT: u32 = 24;
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", BLOCK * COUNT as usize);
    let extents = row(0, BLOCK as u64, COUNT.into());
    let blocks = ids(0..COUNT);
    for config in engines() {
        // What is in no slot yet is read by the kernel's workers.
        for round in 0..8 {
            let config = StoreConfig { budget: ByteSize::mib(COUNT.into()), ..config.clone() };
            let label = label(&config);
            let mut store = Store::open(vec![path.clone()], specs(&extents), config).unwrap();
            let mut fetch = Fetch::new();
            let begun = || store.start(&mut fetch, &blocks).unwrap();
            let begun = std::thread::scope(|scope| scope.spawn(begun).join().unwrap());
            let mut arrived = 0;
            while let Some(ready) = store.next(&mut fetch).unwrap_or_else(|e| panic!("{label}, {round}: {e}"))
            {
                let from = ready.block.index() * BLOCK;
                assert!(bytes(&ready) == &oracle[from..][..BLOCK], "{label}: {:?}", ready.block);
                arrived += 1;
            }
            assert_eq!(arrived, begun, "{label}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Random extents, some overlapping, fetched repeatedly with far too little memory.
    #[test]
    fn blocks_are_the_files_bytes(
        extents in prop::collection::vec(any_extent(), 1..24),
        asked in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 1..20), 1..6),
        request_pages in 1u64..8,
        depth in 1u32..6,
        budget_pages in 17u64..60,
    ) {
        let dir = dir();
        let (path, oracle) = file(dir.path(), "model", FILE);
        for config in replicated(&path, harmless()) {
            let config = StoreConfig {
                request_size: Some(ByteSize::kib(4 * request_pages)),
                queue_depth: Some(depth),
                budget: ByteSize::kib(4 * budget_pages),
                ..config
            };
            let mut store = Store::open(vec![path.clone()], specs(&extents), config).unwrap();
            for list in &asked {
                let blocks: Vec<_> = list.iter().map(|i| BlockId(i.index(extents.len()) as u32)).collect();
                fetch_all(&mut store, &oracle, &extents, &blocks);
            }
        }
    }

    /// Random reads that bypass the arena, into memory of any alignment, with the arena free or
    /// full.
    #[test]
    fn read_into_gives_the_files_bytes(
        reads in prop::collection::vec((any_extent(), 0usize..4096), 1..12),
        request_pages in 1u64..8,
        depth in 1u32..6,
        full in any::<bool>(),
    ) {
        let dir = dir();
        let (path, oracle) = file(dir.path(), "model", FILE);
        for config in replicated(&path, harmless()) {
            let budget = ByteSize::kib(if full { 16 } else { 256 });
            let request_size = Some(ByteSize::kib(4 * request_pages));
            let config = StoreConfig { request_size, queue_depth: Some(depth), budget, ..config };
            let extents = row(0, 4096, 4);
            let mut store = Store::open(vec![path.clone()], specs(&extents), config).unwrap();
            if full {
                fetch_all(&mut store, &oracle, &extents, &ids(0..4));
            }
            let mut memory: Vec<Vec<u8>> = reads.iter().map(|(e, at)| vec![0xEE; at + e.len as usize + 1]).collect();
            let mut list: Vec<ReadInto<'_>> = memory.iter_mut().zip(&reads)
                .map(|(m, (e, at))| ReadInto { extent: *e, dst: &mut m[*at..at + e.len as usize], name: "row" })
                .collect();
            let mut told = 0;
            store.read_into(&mut list, &mut |done| {
                assert!(done.0 > told, "progress goes on");
                told = done.0;
                ControlFlow::Continue(())
            }).unwrap();
            prop_assert_eq!(told, reads.iter().map(|(e, _)| e.len).sum::<u64>());
            for (memory, (e, at)) in memory.iter().zip(&reads) {
                let len = e.len as usize;
                prop_assert!(memory[*at..at + len] == oracle[e.offset as usize..][..len]);
                prop_assert!(memory[..*at].iter().all(|b| *b == 0xEE) && memory[at + len] == 0xEE, "wrote beside it");
            }
            if full {
                prop_assert_eq!(store.stats().evictions, 0);
                prop_assert_eq!(fetch_all(&mut store, &oracle, &extents, &ids(0..4)), 1);
            }
        }
    }
}

/// Memory that is congruent to the file is read into without a bounce buffer, with the same result.
#[test]
fn congruent_memory() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    for config in replicated(&path, engines()) {
        let mut store = Store::open(vec![path.clone()], vec![], config.clone()).unwrap();
        let mut memory = vec![0u8; FILE + 8192];
        let base = memory.as_ptr() as usize;
        for (offset, len) in [(0, FILE), (4096, 8192), (1000, 200_000), (511, 2), (FILE - 5, 5)] {
            let at = (offset + 4096 - base % 4096) % 4096;
            let dst = &mut memory[at..at + len];
            let mut reads = [ReadInto { extent: extent(offset as u64, len as u64), dst, name: "weights" }];
            store.read_into(&mut reads, &mut |_| ControlFlow::Continue(())).unwrap();
            assert!(
                memory[at..at + len] == oracle[offset..offset + len],
                "{} {offset}+{len}",
                label(&config)
            );
        }
    }
}

#[test]
fn hits_come_first_and_are_counted() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let extents = row(32, 20_000, 12);
    for config in replicated(&path, engines()) {
        let config = waited_for(config, "latency=20ms@1..");
        let mut store = Store::open(vec![path.clone()], specs(&extents), config).unwrap();
        fetch_all(&mut store, &oracle, &extents, &[BlockId(7), BlockId(2)]);
        assert!(
            store.is_resident(BlockId(7))
                && !store.is_resident(BlockId(3))
                && !store.is_resident(BlockId(99))
        );
        store.reset_stats();
        let mut fetch = Fetch::new();
        let blocks: Vec<_> = [0, 2, 5, 7, 0, 9].map(BlockId).to_vec();
        assert_eq!(store.start(&mut fetch, &blocks).unwrap(), 6);
        let order: Vec<usize> =
            std::iter::from_fn(|| store.next(&mut fetch).unwrap().map(|ready| ready.index)).collect();
        assert_eq!(order[..2], [1, 3], "what is resident needs no waiting");
        let stats = store.stats();
        assert_eq!((stats.hits, stats.misses, stats.joined, stats.evictions), (2, 3, 1, 0));
        assert_eq!(stats.resident_blocks, 5);
        assert_eq!((stats.stall.as_millis(), stats.io_busy.as_millis()), (20, 20), "all three at once");
        assert!(stats.read_gbps() > 0.0 && (stats.hit_rate() - 2.0 / 6.0).abs() < 1e-9);
    }
}

/// Two concurrent fetches of the same blocks read them once, and neither ends the other's lease.
#[test]
fn what_is_loading_is_joined() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let extents = row(0, 16_384, 8);
    for config in replicated(&path, engines()) {
        // All reads are in flight when the second fetch starts.
        let config = StoreConfig { budget: ByteSize::kib(64), ..waited_for(config, "latency=20ms@1..5") };
        let mut store = Store::open(vec![path.clone()], specs(&extents), config).unwrap();
        let (mut first, mut second) = (Fetch::new(), Fetch::new());
        assert_eq!(store.start(&mut first, &ids(0..3)).unwrap(), 3);
        assert_eq!(store.start(&mut second, &ids(1..4)).unwrap(), 3);
        assert_eq!((store.stats().misses, store.stats().joined), (4, 2));
        while store.next(&mut second).unwrap().is_some() {}
        while store.next(&mut first).unwrap().is_some() {}
        drop(first);
        assert!(!second.is_empty());
        // Only block 0 can be evicted.
        let mut third = Fetch::new();
        assert_eq!(store.start(&mut third, &ids(4..6)).unwrap(), 1);
        assert!(!store.is_resident(BlockId(0)) && (1..4).all(|b| store.is_resident(BlockId(b))));
        drop((second, third));
        fetch_all(&mut store, &oracle, &extents, &ids(0..8));
    }
}

/// Leased bytes stay in place, whatever else is fetched.
#[test]
fn leased_blocks_stay() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let extents = row(64, 8_192, 30);
    for config in replicated(&path, engines()) {
        let config = StoreConfig { budget: ByteSize::kib(60), ..config };
        let mut store = Store::open(vec![path.clone()], specs(&extents), config).unwrap();
        let mut kept = Fetch::new();
        assert_eq!(store.start(&mut kept, &ids(0..2)).unwrap(), 2);
        let ready: Vec<_> = std::iter::from_fn(|| store.next(&mut kept).unwrap()).collect();
        for round in 0..3 {
            let waves = fetch_all(&mut store, &oracle, &extents, &ids(2..30));
            assert!(waves > 5, "round {round}: {waves} waves");
        }
        for ready in &ready {
            let at = extents[ready.block.index()].offset as usize;
            assert!(bytes(ready) == &oracle[at..at + 8_192], "a leased block's bytes changed");
        }
        // With the rest leased too, no block fits. That is not an error, because the leases will
        // end.
        let mut rest = Fetch::new();
        let accepted = store.start(&mut rest, &ids(2..30)).unwrap();
        assert!(accepted > 0);
        assert_eq!(store.start(&mut Fetch::new(), &[BlockId(29)]).unwrap(), 0);
        store.release(&mut kept);
        assert_eq!(store.start(&mut Fetch::new(), &[BlockId(29)]).unwrap(), 1);
    }
}

/// A hit that follows misses in the list is not evicted to make room for them if another block can
/// be.
#[test]
fn hits_later_in_the_list_are_kept_while_there_is_another_way() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let extents = row(0, 8_192, 10);
    let config = StoreConfig { budget: ByteSize::kib(32), ..engines().remove(0) };
    let mut store = Store::open(vec![path], specs(&extents), config).unwrap();
    fetch_all(&mut store, &oracle, &extents, &ids(0..4));
    store.reset_stats();
    // Block 0 is the least recently used, and the last in the list.
    assert_eq!(fetch_all(&mut store, &oracle, &extents, &[8, 9, 0].map(BlockId)), 1);
    assert_eq!((store.stats().hits, store.stats().evictions), (1, 2));
    // There is room for four of the five, so the hits at the end are evicted.
    assert_eq!(fetch_all(&mut store, &oracle, &extents, &[1, 2, 3, 4, 0].map(BlockId)), 2);
}

/// Abandoned reads occupy their slots only until they have arrived.
#[test]
fn abandoned_loads_make_room() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let extents = row(0, 8_192, 6);
    for config in replicated(&path, engines()) {
        let faults = Some("latency=5ms@1..3".parse().unwrap());
        let config = StoreConfig { budget: ByteSize::kib(16), faults, ..config };
        let mut store = Store::open(vec![path.clone()], specs(&extents), config).unwrap();
        let mut fetch = Fetch::new();
        assert_eq!(store.start(&mut fetch, &ids(0..2)).unwrap(), 2);
        store.release(&mut fetch);
        // Two at a time, or one while the other slot waits for its abandoned read.
        let waves = fetch_all(&mut store, &oracle, &extents, &ids(2..6));
        assert!((2..=4).contains(&waves), "{waves} waves");
    }
}

#[test]
fn a_store_can_go_while_it_reads() {
    let dir = dir();
    let (path, _) = file(dir.path(), "model", FILE);
    let extents = row(0, 30_000, 9);
    for config in replicated(&path, engines()) {
        let config = StoreConfig { faults: Some("latency=3ms@1..".parse().unwrap()), ..config };
        let mut store = Store::open(vec![path.clone()], specs(&extents), config).unwrap();
        let mut fetch = Fetch::new();
        assert_eq!(store.start(&mut fetch, &ids(0..9)).unwrap(), 9);
        drop(store);
        assert_eq!(fetch.len(), 9);
    }
}

#[test]
fn reading_can_be_stopped() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    for config in replicated(&path, engines()) {
        let config = StoreConfig { request_size: Some(ByteSize::kib(4)), queue_depth: Some(2), ..config };
        let mut store = Store::open(vec![path.clone()], vec![], config).unwrap();
        let mut dst = vec![0; 200_000];
        let mut reads = [ReadInto { extent: extent(5, 200_000), dst: &mut dst, name: "weights" }];
        let stopped = store.read_into(&mut reads, &mut |done| {
            if done.0 > 50_000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match stopped {
            Err(StoreError::Cancelled { done, total: 200_000 }) => {
                assert!(done > 50_000 && done < 100_000, "{done}")
            }
            other => panic!("{other:?}"),
        }
        store.read_into(&mut reads, &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(dst == oracle[5..200_005]);
    }
}

/// Blocks of two sizes, as in a model with two quantisations, must not fragment the arena.
#[test]
fn mixed_sizes_keep_the_arena_full() {
    let dir = dir();
    let (path, oracle) = file(dir.path(), "model", FILE);
    let extents: Vec<_> =
        (0..32u64).map(|i| extent(i * 8192, if i % 3 == 2 { 24_576 } else { 16_384 })).collect();
    let config = StoreConfig { budget: ByteSize::kib(256), ..engines().remove(0) };
    let mut store = Store::open(vec![path], specs(&extents), config).unwrap();
    let mut used = 0;
    let mut state = 1u32;
    for round in 0..400 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        fetch_all(&mut store, &oracle, &extents, &[BlockId(state >> 27)]);
        if round >= 100 {
            used += store.stats().resident.0;
        }
    }
    let share = used as f64 / 300.0 / f64::from(256 << 10);
    assert!(share > 0.85, "only {share:.2} of the arena is used");
}
