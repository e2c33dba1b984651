//! The timeline of a store, in the format of trace viewers.

use crate::common::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;
use terrace_model::{ByteSize, LayerId};
use terrace_store::timeline::{Span, Track, What};
use terrace_store::{BlockId, BlockSpec, Clock, Fetch, Purpose, ReadInto, Store, StoreConfig, Use};

const FILE: usize = 400_000;
const LEN: u64 = 10_000;

fn open(config: StoreConfig) -> (Store, tempfile::TempDir) {
    let dir = dir();
    let (path, _) = file(dir.path(), "model", FILE);
    let spec = |(i, spec): (u32, BlockSpec)| BlockSpec { layer: Some(LayerId(i / 8)), ..spec };
    let specs = (0..).zip(specs(&row(0, LEN, 32))).map(spec).collect();
    (Store::open(vec![path], specs, config).unwrap(), dir)
}

/// Causes reads of every purpose, in a store whose delays pass on the clock.
fn work(store: &mut Store, clock: &Clock) {
    let poll = |store: &mut Store| {
        store.poll().unwrap();
        clock.sleep(Duration::from_millis(1));
    };
    let mut fetch = Fetch::new();
    for (blocks, how) in [(ids(0..6), Use::Decode), (ids(4..20), Use::Sweep)] {
        let mut rest = &blocks[..];
        while !rest.is_empty() {
            let accepted = store.start_as(&mut fetch, rest, how).unwrap();
            while store.next(&mut fetch).unwrap().is_some() {}
            store.release(&mut fetch);
            rest = &rest[accepted..];
        }
    }
    store.fill(ids(20..23)).unwrap();
    while store.filling() {
        poll(store);
    }
    store.speculate(&ids(24..26)).unwrap();
    while !(24..26).all(|block| store.is_resident(BlockId(block))) {
        poll(store);
    }
    let mut dst = vec![0; 50_000];
    let mut reads = [ReadInto { extent: extent(5, 50_000), dst: &mut dst, name: "row" }];
    store.read_into(&mut reads, &mut |_| ControlFlow::Continue(())).unwrap();
}

#[test]
fn a_timeline_opens_in_a_viewer() {
    for config in engines() {
        let label = label(&config);
        let config = StoreConfig {
            speculation: ByteSize::mib(1),
            request_size: Some(ByteSize::kib(8)),
            queue_depth: Some(6),
            ..waited_for(config, "latency=300us@1..,eintr@5")
        };
        let clock = config.clock.clone();
        let (mut store, _dir) = open(config);
        assert!(store.timeline_mut().is_none() && store.take_timeline().is_none());
        store.record_timeline(4096);
        work(&mut store, &clock);
        // A span of another thread, as the backend records it.
        let timeline = store.timeline_mut().unwrap();
        let start = timeline.now();
        timeline.since(start, Track::Thread(1), What::Experts { layer: Some(LayerId(3)) });
        timeline.name(Track::Lane(0), "lane GPU0".into());
        let layer = Some(LayerId(2));
        timeline.since(start, Track::Lane(0), What::Kernel { layer, pairs: 5 });
        timeline.since(start, Track::Sent(0), What::Copy { layer, bytes: ByteSize(7) });
        timeline.since(start, Track::Device(0), What::Piece { after: layer, before: None });
        let timeline = store.take_timeline().unwrap();
        assert!(store.timeline_mut().is_none());
        assert_eq!(timeline.dropped(), 0, "{label}");
        let reads = |wanted: Purpose| -> Vec<Span> {
            let is = |span: &&Span| matches!(span.what, What::Read { purpose, .. } if purpose == wanted);
            timeline.spans().iter().filter(is).copied().collect()
        };
        // Each block is read in whole pages, so more bytes are read than it has.
        let bytes = |purpose| -> u64 {
            let of = |span: Span| if let What::Read { bytes, .. } = span.what { bytes.0 } else { 0 };
            reads(purpose).into_iter().map(of).sum()
        };
        for (purpose, blocks) in [(Purpose::Decode, 6), (Purpose::Fill, 3), (Purpose::Speculation, 2)] {
            let slack = 8192 * blocks;
            let got = bytes(purpose);
            assert!((blocks * LEN..=blocks * LEN + slack).contains(&got), "{label} {purpose:?}: {got}");
        }
        assert!(!reads(Purpose::Sweep).is_empty() && !reads(Purpose::Caller).is_empty());

        let mut json = Vec::new();
        let written = timeline.write_chrome(|block| store.spec(block), &mut json).unwrap();
        let json: Value = serde_json::from_slice(&json).unwrap();
        let events = json["traceEvents"].as_array().unwrap();
        let mut tracks: BTreeMap<(u64, u64), Vec<(u64, u64)>> = BTreeMap::new();
        let mut named = BTreeSet::new();
        let nanos = |event: &Value, key: &str| (event[key].as_f64().unwrap() * 1e3).round() as u64;
        for event in events {
            let pid = event["pid"].as_u64().unwrap();
            match event["ph"].as_str().unwrap() {
                "M" => {
                    assert!(!event["args"]["name"].as_str().unwrap().is_empty());
                    named.insert((pid, event["tid"].as_u64()));
                }
                "X" => {
                    let (start, length) = (nanos(event, "ts"), nanos(event, "dur"));
                    let tid = event["tid"].as_u64().unwrap();
                    tracks.entry((pid, tid)).or_default().push((start, start + length));
                }
                other => panic!("{other}"),
            }
        }
        let count: usize = tracks.values().map(Vec::len).sum();
        assert_eq!(count, written);
        assert!(events.iter().any(|event| event["name"] == "idle"), "{label}: never without a request");
        for ((pid, tid), mut spans) in tracks {
            assert!(named.contains(&(pid, Some(tid))), "track {pid}/{tid} has no name");
            spans.sort_unstable();
            assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{label}: overlaps on {pid}/{tid}");
        }
        let named = |name: &str| events.iter().find(|event| event["args"]["name"] == *name).unwrap();
        let on = |track: &str, what: &str| {
            let track = named(track);
            let is = |event: &&Value| event["name"] == *what && event["tid"] == track["tid"];
            events.iter().find(|event| is(event) && event["pid"] == track["pid"]).unwrap()
        };
        assert_eq!(named("lane GPU0")["pid"], named("devices")["pid"]);
        let kernel = &on("lane GPU0", "kernel")["args"];
        assert_eq!((kernel["layer"].as_u64(), kernel["pairs"].as_u64()), (Some(2), Some(5)));
        assert_eq!(on("sent to lane 0", "copy")["args"]["bytes"], 7);
        let piece = &on("layers on device 0", "layers")["args"];
        assert!(piece["after_layer"] == 2 && piece.get("before_layer").is_none(), "{piece}");
        let guess = events.iter().find(|event| event["name"] == "speculation").unwrap();
        assert_eq!(guess["args"]["tensor"], "blk.3.ffn_up_exps.weight");
        assert!(matches!(guess["args"]["expert"].as_u64(), Some(24 | 25)) && guess["args"]["layer"] == 3);
        assert!(events.iter().any(|event| event["name"] == "wait" && event["args"]["layer"] == 0));
        let caller = events.iter().find(|event| event["name"] == "caller").unwrap();
        assert!(caller["args"]["bytes"].as_u64().unwrap() > 0 && caller["args"].get("tensor").is_none());
    }
}

#[test]
fn a_timeline_may_begin_late_and_be_too_small() {
    let config = waited_for(engines().remove(0), "latency=2ms@1..");
    let clock = config.clock.clone();
    let (mut store, _dir) = open(StoreConfig { speculation: ByteSize::mib(1), ..config });
    let mut fetch = Fetch::new();
    store.start(&mut fetch, &ids(0..4)).unwrap();
    store.record_timeline(3);
    while store.next(&mut fetch).unwrap().is_some() {}
    let spans = store.timeline_mut().unwrap().spans();
    assert!(
        spans.iter().all(|span| matches!(span.what, What::Wait { .. })),
        "sent before it began: {spans:?}"
    );
    store.release(&mut fetch);
    work(&mut store, &clock);
    let timeline = store.take_timeline().unwrap();
    assert_eq!(timeline.spans().len(), 3);
    assert!(timeline.dropped() > 10);
    let mut json = Vec::new();
    timeline.write_chrome(|block| store.spec(block), &mut json).unwrap();
    let json: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["otherData"]["dropped_spans"], timeline.dropped().to_string());
}
