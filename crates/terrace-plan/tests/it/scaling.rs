//! More and more workers.

use crate::models;
use terrace_model::{ByteSize, ModelFile};
use terrace_plan::machine::{DeviceProfile, StorageProfile, ThreadBandwidth};
use terrace_plan::options::{ContextOptions, HotOptions};
use terrace_plan::parts::Bound;
use terrace_plan::scaling::{Fleet, Link, Point, Prices, scaled};
use terrace_plan::{HitCurve, HotSize, MachineProfile, PerDevice, Wishes, plan};

const PRICES: Prices = Prices { home: 1.0, worker: 0.5 };
const NEAR: Link = Link { bytes_per_s: 1.25e9, latency_s: 100e-6 };

/// A machine with 8 cores, 60 GB/s of memory and a disk with 3 GB/s.
fn machine(ram: u64) -> MachineProfile {
    let mut machine = MachineProfile::unmeasured("m", 8, ByteSize::gib(ram + 2), ByteSize::gib(ram));
    machine.memory.bandwidth = vec![ThreadBandwidth { threads: 8, bytes_per_s: 60e9 }];
    machine.storage = vec![StorageProfile { sequential_bytes_per_s: Some(3e9), ..StorageProfile::default() }];
    machine
}

fn at(model: &ModelFile, link: Link, wishes: &Wishes, workers: u32) -> Point {
    let (home, worker) = (machine(8), machine(8));
    let fleet = Fleet { home: &home, worker: &worker, link, prices: PRICES };
    scaled(model, &fleet, wishes, workers).unwrap()
}

/// Wishes without copies of experts, so that experts are where their layer is.
fn whole_layers() -> Wishes {
    Wishes {
        hot: HotOptions { hot_cache: PerDevice::all(HotSize::Off), ..HotOptions::default() },
        ..Wishes::default()
    }
}

#[test]
fn workers_hold_what_the_disk_would_read() {
    let model = models::qwen3_30b();
    let wishes = whole_layers();
    let points: Vec<Point> = (0..6).map(|workers| at(&model, NEAR, &wishes, workers)).collect();
    let alone = plan(&model, &machine(8), &wishes).unwrap().estimate.unwrap();
    assert_eq!(points[0].decode_tok_s, alone.decode_tok_s, "no worker is the plan of one machine");
    assert_eq!((points[0].bound, points[0].used, points[0].link_per_token), (Bound::Disk, 0, ByteSize::ZERO));
    for pair in points.windows(2) {
        assert!(pair[1].decode_tok_s >= pair[0].decode_tok_s * 0.98, "{pair:#?}");
    }
    let last = points.last().unwrap();
    assert_eq!(last.read_per_token, ByteSize::ZERO);
    assert!(last.link_per_token > ByteSize::ZERO && last.sent_at_load > ByteSize::gib(8), "{last:#?}");
    assert!(last.busy.worker < last.busy.workers && last.used > 1, "workers take turns: {last:#?}");
    // One client never has more than one machine at work.
    let all = last.busy.home + last.busy.workers + last.busy.links;
    assert!((0.9..1.05).contains(&all), "{last:#?}");
}

/// Home and a worker compute the experts of a layer at the same time, if the way is short and wide: each
/// layer sends results back, and the graph in pieces.
#[test]
fn experts_are_divided_where_that_is_faster() {
    let model = models::qwen3_30b();
    let divides = |link| (at(&model, link, &Wishes::default(), 2), at(&model, link, &whole_layers(), 2));
    let (near, near_turns) = divides(NEAR);
    assert!(near.decode_tok_s >= near_turns.decode_tok_s * 0.999, "{near:#?} {near_turns:#?}");
    let (divided, turns) = divides(Link { bytes_per_s: 12.5e9, latency_s: 20e-6 });
    assert!(divided.decode_tok_s > turns.decode_tok_s * 1.05, "{divided:#?} {turns:#?}");
    assert!(divided.busy.home + divided.busy.workers > 1.05, "{divided:#?}");
}

#[test]
fn a_slow_link_costs_time_and_a_slower_one_the_worker() {
    let model = models::qwen3_30b();
    let speed = |bytes_per_s, latency_s| at(&model, Link { bytes_per_s, latency_s }, &whole_layers(), 4);
    let (near, far) = (speed(1.25e9, 50e-6), speed(1.25e8, 1e-3));
    assert!(far.decode_tok_s < near.decode_tok_s && far.busy.links > near.busy.links, "{near:#?} {far:#?}");
    let lost = speed(1e4, 1.0);
    assert_eq!((lost.used, lost.layers_away), (0, 0), "{lost:#?}");
}

#[test]
fn clients_share_what_is_read() {
    let model = models::qwen3_30b();
    let speed = |clients| {
        let hits = Some(HitCurve::typical(128, 8));
        let wishes = Wishes {
            context: ContextOptions {
                sequences: clients,
                unified: false,
                ctx: Some(2048),
                ..ContextOptions::default()
            },
            clients,
            hits,
            ..Wishes::default()
        };
        at(&model, NEAR, &wishes, 4)
    };
    let mut before = speed(1);
    for clients in [2, 8, 32] {
        let now = speed(clients);
        assert!(now.decode_tok_s > before.decode_tok_s, "{clients}: {before:#?} {now:#?}");
        assert!(
            now.decode_tok_s / f64::from(now.clients) < before.decode_tok_s / f64::from(before.clients),
            "none of them is faster for it: {now:#?}"
        );
        assert!(now.per_million.unwrap() < before.per_million.unwrap());
        before = now;
    }
}

/// A program of all of them would take hours.
#[test]
fn there_may_be_many_workers() {
    let model = models::qwen3_30b();
    let many = at(&model, NEAR, &Wishes::default(), 64);
    assert!(many.used < 8, "{many:#?}");
    let hour = 1.0 + 64.0 * 0.5;
    assert!(many.per_million.unwrap() > hour / 3600.0 / many.decode_tok_s * 1e6);
}

/// A worker lends its accelerators, and not its processor beside them.
#[test]
fn accelerators_are_lent() {
    let model = models::qwen3_30b();
    let (home, mut worker) = (machine(8), machine(64));
    for name in ["gpu0", "gpu1"] {
        worker.devices.push(DeviceProfile {
            name: name.into(),
            memory_total: ByteSize::gib(12),
            memory_free: ByteSize::gib(12),
            bandwidth_bytes_per_s: Some(900e9),
            ..DeviceProfile::default()
        });
    }
    let fleet = Fleet { home: &home, worker: &worker, link: NEAR, prices: PRICES };
    let point = scaled(&model, &fleet, &Wishes::default(), 1).unwrap();
    assert_eq!(point.used, 1);
    assert!(point.sent_at_load > ByteSize::gib(12) && point.sent_at_load < ByteSize::gib(24), "{point:#?}");
}
