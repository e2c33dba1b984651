//! Computing that a consumer reports, counted and recorded together with its waits.

use crate::common::*;
use std::time::Duration;
use terrace_model::{ByteSize, LayerId};
use terrace_store::timeline::{Track, What};
use terrace_store::{BlockId, BlockSpec, Clock, Computing, Fetch, Store, StoreConfig};

/// 8 blocks in each of 4 layers.
fn open(config: StoreConfig) -> (Store, tempfile::TempDir) {
    let dir = dir();
    let (path, _) = file(dir.path(), "model", 400_000);
    let spec = |(i, spec): (u32, BlockSpec)| BlockSpec { layer: Some(LayerId(i / 8)), ..spec };
    let specs = (0..).zip(specs(&row(0, 10_000, 32))).map(spec).collect();
    (Store::open(vec![path], specs, config).unwrap(), dir)
}

#[test]
fn waiting_is_not_computing_and_what_is_read_meanwhile_is_hidden() {
    const WORK: Duration = Duration::from_millis(3);
    const READ: Duration = Duration::from_millis(30);
    for config in engines() {
        let label = label(&config);
        let clock = Clock::still();
        let faults = Some(format!("latency={}ms@1..", READ.as_millis()).parse().unwrap());
        let (mut store, _dir) = open(StoreConfig { faults, clock: clock.clone(), ..config });
        store.record_timeline(1000);
        let mut fetch = Fetch::new();
        store.computing(Computing::Dense(Some(BlockId(8))));
        clock.sleep(WORK);
        store.computing(Computing::Experts(BlockId(8)));
        store.start(&mut fetch, &ids(8..10)).unwrap();
        clock.sleep(WORK);
        while store.next(&mut fetch).unwrap().is_some() {}
        clock.sleep(WORK);
        store.computing(Computing::Dense(None));
        store.release(&mut fetch);
        store.computed();
        // No computation was reported, so this time is not counted.
        clock.sleep(WORK);
        let stats = store.stats();
        assert_eq!((stats.dense, stats.experts, stats.stall), (WORK, 2 * WORK, READ - WORK), "{label}");
        // While the first expert was computed, both reads were in flight; after the wait, none was.
        assert_eq!((stats.io_busy, stats.demand_busy, stats.hidden), (READ, READ, WORK), "{label}");
        assert!((stats.overlap() - 0.1).abs() < 1e-9, "{label}: {}", stats.overlap());
        assert_eq!(stats.demand_read, stats.bytes_read);
        let layers = store.layer_stats();
        assert_eq!((layers[1].experts, layers[1].io_busy, layers[1].stall), (2 * WORK, READ, READ - WORK));
        assert!([0, 2, 3].iter().all(|&i| layers[i].experts + layers[i].io_busy == Duration::ZERO));

        // The thread's spans, in order: they are adjacent, and the wait splits the experts' span.
        let timeline = store.take_timeline().unwrap();
        let lane: Vec<_> = timeline.spans().iter().filter(|span| span.track == Track::Thread(0)).collect();
        assert!(lane.windows(2).all(|pair| pair[0].end == pair[1].start), "{label}: {lane:?}");
        let sum = |wanted: What| -> Duration {
            let spans = lane.iter().filter(|span| span.what == wanted);
            spans.map(|span| Duration::from_nanos(span.end - span.start)).sum()
        };
        let layer = Some(LayerId(1));
        let sums = (
            sum(What::Other { name: "dense", layer }),
            sum(What::Experts { layer }),
            sum(What::Wait { layer }),
        );
        assert_eq!(sums, (stats.dense, stats.experts, stats.stall), "{label}: {lane:?}");
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
        assert_eq!(stats.hidden, Duration::ZERO, "{label}: nothing was computed");
        let layers = store.layer_stats();
        assert!(layers[0].io_busy > Duration::ZERO && layers[3].io_busy > Duration::ZERO, "{label}");
    }
}

#[test]
fn waiting_for_a_device_is_neither_computing_nor_a_stall() {
    const WORK: Duration = Duration::from_millis(3);
    const JOIN: Duration = Duration::from_millis(5);
    let clock = Clock::still();
    let (mut store, _dir) = open(StoreConfig { clock: clock.clone(), ..engines().remove(0) });
    store.record_timeline(100);
    store.computing(Computing::Experts(BlockId(8)));
    clock.sleep(WORK);
    let asked = clock.now();
    clock.sleep(JOIN);
    store.waited_for_device(Some(LayerId(1)), asked, clock.now());
    clock.sleep(WORK);
    store.computed();
    let stats = store.stats();
    assert_eq!((stats.experts, stats.dense, stats.stall), (2 * WORK, Duration::ZERO, Duration::ZERO));
    let timeline = store.take_timeline().unwrap();
    let (experts, join) = (What::Experts { layer: Some(LayerId(1)) }, What::Join { layer: Some(LayerId(1)) });
    let spans: Vec<_> = timeline.spans().iter().map(|span| (span.what, span.end - span.start)).collect();
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap();
    assert_eq!(spans, [(experts, nanos(WORK)), (join, nanos(JOIN)), (experts, nanos(WORK))]);
    assert!(timeline.spans().windows(2).all(|pair| pair[0].end == pair[1].start));
}
