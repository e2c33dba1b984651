//! What a consumer says that it computes, counted and recorded beside what it waits for.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod common;

use common::*;
use std::time::{Duration, Instant};
use terrace_model::{ByteSize, LayerId};
use terrace_store::timeline::{Track, What};
use terrace_store::{BlockId, BlockSpec, Computing, Fetch, Store, StoreConfig};

/// 8 blocks in each of 4 layers.
fn open(config: StoreConfig) -> (Store, tempfile::TempDir) {
    let dir = dir();
    let (path, _) = file(dir.path(), "model", 400_000);
    let spec = |(i, spec): (u32, BlockSpec)| BlockSpec { layer: Some(LayerId(i / 8)), ..spec };
    let specs = (0..).zip(specs(&row(0, 10_000, 32))).map(spec).collect();
    (Store::open(vec![path], specs, config).unwrap(), dir)
}

fn work(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn waiting_is_not_computing_and_what_is_read_meanwhile_is_hidden() {
    const WORK: Duration = Duration::from_millis(3);
    for config in engines() {
        let label = label(&config);
        // Longer than the work, so that there is something left to wait for.
        let (mut store, _dir) =
            open(StoreConfig { faults: Some("latency=30ms@1..".parse().unwrap()), ..config });
        store.record_timeline(1000);
        let mut fetch = Fetch::new();
        let begin = Instant::now();
        store.computing(Computing::Dense(Some(BlockId(8))));
        work(WORK);
        store.computing(Computing::Experts(BlockId(8)));
        store.start(&mut fetch, &ids(8..10)).unwrap();
        work(WORK);
        while store.next(&mut fetch).unwrap().is_some() {}
        work(WORK);
        store.computing(Computing::Dense(None));
        store.release(&mut fetch);
        store.computed();
        let all = begin.elapsed();
        // Nobody computes: counted for nobody.
        work(WORK);
        let stats = store.stats();
        assert!(stats.dense >= WORK && stats.experts >= 2 * WORK, "{label}: {stats:?}");
        assert!(stats.stall > Duration::ZERO, "{label}");
        assert!(stats.dense + stats.experts + stats.stall <= all, "{label}: {stats:?} in {all:?}");
        // While the first expert was worked on, both were in flight; behind the wait, none was.
        assert!(stats.hidden >= WORK && stats.hidden <= stats.experts, "{label}: {stats:?}");
        assert!((0.0..1.0).contains(&stats.overlap()) && stats.overlap() > 0.0);
        assert_eq!(stats.demand_read, stats.bytes_read);
        assert!(stats.demand_busy <= stats.io_busy && stats.demand_busy >= stats.stall, "{label}: {stats:?}");
        let layers = store.layer_stats();
        assert_eq!(layers[1].experts, stats.experts);
        assert!(layers[1].io_busy > Duration::ZERO && layers[1].io_busy <= stats.io_busy, "{label}");
        assert!([0, 2, 3].iter().all(|&i| layers[i].experts + layers[i].io_busy == Duration::ZERO));

        // The lane's spans, in order: they touch, and the wait cuts the experts in two.
        let timeline = store.take_timeline().unwrap();
        let lane: Vec<_> = timeline.spans().iter().filter(|span| span.track == Track::Thread(0)).collect();
        assert!(lane.windows(2).all(|pair| pair[0].end == pair[1].start), "{label}: {lane:?}");
        let sum = |wanted: What| -> u64 {
            lane.iter().filter(|span| span.what == wanted).map(|span| span.end - span.start).sum()
        };
        let layer = Some(LayerId(1));
        let close =
            |got: u64, counted: Duration| got.abs_diff(u64::try_from(counted.as_nanos()).unwrap()) < 1000;
        assert!(close(sum(What::Experts { layer }), stats.experts), "{label}: {lane:?} {stats:?}");
        assert!(close(sum(What::Wait { layer }), stats.stall), "{label}: {lane:?} {stats:?}");
        assert!(sum(What::Other { name: "dense", layer }) > 0);
        assert_eq!(lane[1].what, What::Experts { layer }, "{label}: {lane:?}");
        assert_eq!(lane[2].what, What::Wait { layer }, "{label}: {lane:?}");

        store.reset_stats();
        let stats = store.stats();
        assert_eq!(stats.experts + stats.dense + stats.hidden + stats.demand_busy, Duration::ZERO);
        assert_eq!((stats.demand_read, stats.overlap(), stats.demand_gbps()), (ByteSize::ZERO, 0.0, 0.0));
    }
}

#[test]
fn what_nobody_asked_for_is_no_demand() {
    for config in engines() {
        let label = label(&config);
        let (mut store, _dir) = open(StoreConfig { speculation: ByteSize::mib(1), ..config });
        store.fill(ids(0..4)).unwrap();
        store.speculate(&ids(24..26)).unwrap();
        while store.filling() || !(24..26).all(|block| store.is_resident(BlockId(block))) {
            store.poll().unwrap();
        }
        let stats = store.stats();
        assert_eq!((stats.demand_busy, stats.demand_read), (Duration::ZERO, ByteSize::ZERO), "{label}");
        assert!(stats.io_busy > Duration::ZERO && stats.bytes_read.0 >= 60_000, "{label}: {stats:?}");
        assert_eq!(stats.hidden, Duration::ZERO, "{label}: nobody computed");
        let layers = store.layer_stats();
        assert!(layers[0].io_busy > Duration::ZERO && layers[3].io_busy > Duration::ZERO, "{label}");
    }
}
