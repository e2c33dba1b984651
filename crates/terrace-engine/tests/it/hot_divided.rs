//! Copies of each layer's experts on several devices of different size: tokens and logits equal
//! stock llama.cpp's, bit for bit, while copies are exchanged, tensors are replaced, learn files are
//! applied, and devices are lost.

use crate::reloading;
use crate::reloading::{dir, from_file, load, original, servers, trace, with, write};
use std::ops::ControlFlow;
use std::path::Path;
use terrace_engine::options::{HotOptions, MemoryOptions};
use terrace_engine::{Engine, Mode, Options};
use terrace_ggml::llama::Sampling;
use terrace_lanes::{HotLayerReport, HotReport, HotUpdate};
use terrace_model::ByteSize;
use terrace_model::learn::Reported;
use terrace_plan::{Budget, HotSize, HotSplit, Manage, PerDevice};
use terrace_testkit::rpc::RpcServer;
use terrace_testkit::{Arch, Spec, WeightType};

const MEMORY: ByteSize = ByteSize::mib(256);

/// Room for about `count` experts of each layer.
fn room(model: &Path, count: u64) -> HotSize {
    let file = terrace_ggml::gguf::read(model).unwrap();
    let groups = terrace_plan::model::expert_groups(&file);
    // Plus 1 MiB for activations.
    HotSize::Bytes(ByteSize(groups.iter().map(|group| group.bundle.bytes() * count).sum::<u64>() + (1 << 20)))
}

/// One expert of each layer on the first device, and two on each of the others.
fn with_copies(model: &Path, servers: &[RpcServer], manage: Manage, split: HotSplit) -> Options {
    let plain = reloading::options(model, manage);
    let copied = reloading::copies(plain, servers, ByteSize::ZERO, ByteSize::mib(4));
    let cache =
        vec![PerDevice { device: None, value: room(model, 2) }, PerDevice::on("RPC0", room(model, 1))];
    Options { hot: HotOptions { hot_cache: cache, hot_split: split, ..copied.hot }, ..copied }
}

/// Greedy tokens of a prompt and bits of the logits after them. Calls `at` after each token.
fn generate(engine: &mut Engine, at: &mut dyn FnMut(usize)) -> (Vec<i32>, Vec<u32>) {
    let mut session = engine.session();
    let prompt = engine.tokenize("The water goes down from one terrace to the next, ", true, false).unwrap();
    let mut count = 0;
    let sink = &mut |_: &[u8]| {
        count += 1;
        at(count);
        ControlFlow::Continue(())
    };
    let tokens = engine.generate(&mut session, &prompt, Some(40), &Sampling::greedy(), sink).unwrap().tokens;
    (tokens, engine.logits().unwrap().iter().map(|logit| logit.to_bits()).collect())
}

fn stock(model: &Path) -> (Vec<i32>, Vec<u32>) {
    let plain = reloading::options(model, Manage::None);
    let memory = MemoryOptions { ram_budget: Budget::Auto, ..plain.memory.clone() };
    generate(&mut load(Options { mode: Mode::Stock { repack: false }, memory, ..plain }), &mut |_| {})
}

/// The devices of each layer with their numbers of slots.
fn on(report: &HotReport) -> Vec<Vec<(&str, u32)>> {
    let layers = report.layers.iter();
    layers.map(|layer| layer.on.iter().map(|on| (&on.device[..], on.slots)).collect()).collect()
}

mod every_architecture_is_exact {
    terrace_testkit::each_moe_architecture!(super::one_architecture);
}

fn one_architecture(arch: Arch) {
    let dir = dir();
    let model = write(&Spec::new(arch), dir.path().join("model.gguf"));
    let (golden, servers) = (stock(&model), servers(2, MEMORY));
    for (manage, split) in [(Manage::Experts, HotSplit::Even), (Manage::None, HotSplit::Warm)] {
        let mut engine = load(with_copies(&model, &servers, manage, split));
        for round in 0..2 {
            let got = generate(&mut engine, &mut |_| {});
            assert!(got == golden, "{arch}, {manage}, {split}, {round}: {:?}", engine.hot_experts());
        }
        let report = engine.hot_experts().unwrap();
        for layer in on(&report) {
            // The room that is left over is for one more expert of some layers.
            assert!(
                matches!(layer[..], [("RPC0", 1 | 2), ("RPC1", 2 | 3)]),
                "{arch}: {layer:?} of {report:?}"
            );
        }
        let totals = report.totals;
        assert!(totals.hot > 0 && totals.cold > 0 && totals.exchanged > 0, "{report:?}");
        assert!(totals.prefill_hot > 0 && totals.filled > 0, "{report:?}");
        let lanes: Vec<&str> = report.lanes.iter().map(|(device, _)| &device[..]).collect();
        assert_eq!(lanes, ["RPC0", "RPC1"]);
        let worked = report.lanes.iter().all(|(_, work)| work.jobs > 0 && work.copied > 0);
        assert!(worked, "{report:?}");
        let pairs: u64 = report.lanes.iter().map(|(_, work)| work.pairs).sum();
        assert_eq!(pairs, totals.hot + totals.prefill_hot, "{report:?}");
        assert!(report.layers.iter().all(|layer| layer.device == "RPC0 + RPC1"), "{report:?}");
    }
}

#[test]
fn a_device_that_is_lost_leaves_its_experts_to_the_cpu() {
    let (dir, mut servers) = (dir(), servers(3, MEMORY));
    let model = write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    let mut engine = load(with_copies(&model, &servers, Manage::Experts, HotSplit::Even));
    let golden = generate(&mut engine, &mut |_| {});
    assert!(golden == stock(&model));
    let lose = |engine: &mut Engine, servers: &mut Vec<RpcServer>, which: usize| {
        let got = generate(engine, &mut |count| {
            if count == 20 {
                drop(servers.remove(which));
            }
        });
        assert!(got == golden, "{:?}", engine.hot_experts());
        // Its experts are used in the next answer at the latest.
        assert!(generate(engine, &mut |_| {}) == golden);
        engine.hot_experts().unwrap()
    };
    let report = lose(&mut engine, &mut servers, 1);
    for layer in on(&report) {
        let devices: Vec<&str> = layer.iter().map(|(device, _)| *device).collect();
        assert_eq!(devices, ["RPC0", "RPC2"], "{report:?}");
    }
    assert!(report.layers.iter().all(|layer| layer.problem.is_none() && layer.held > 0), "{report:?}");
    // The others go on, and exchange.
    let (hot, exchanged) = (report.totals.hot, report.totals.exchanged + report.totals.filled);
    assert!(generate(&mut engine, &mut |_| {}) == golden);
    let after = engine.hot_experts().unwrap().totals;
    assert!(after.hot > hot && after.exchanged + after.filled >= exchanged, "{after:?}");
    // Experts are applied to the devices that are left.
    let learned = engine.learned(Reported::default()).unwrap();
    engine.apply_learned(&learned, &mut || ControlFlow::Continue(())).unwrap();
    assert!(generate(&mut engine, &mut |_| {}) == golden);
    let report = lose(&mut engine, &mut servers, 0);
    assert!(report.layers.iter().all(|layer| layer.device == "RPC2"), "{report:?}");
    let report = lose(&mut engine, &mut servers, 0);
    assert!(report.layers.iter().all(|layer| layer.problem.is_some() && layer.slots == 0), "{report:?}");
    assert_eq!(report.totals.memory, ByteSize::ZERO);
}

#[test]
fn tensors_are_replaced_on_all_devices() {
    let (dir, mut servers) = (dir(), servers(2, MEMORY));
    let spec = Spec::new(Arch::GptOss);
    let base = write(&spec, dir.path().join("base.gguf"));
    let down = "blk.1.ffn_down_exps.weight";
    let donor = write(&with(&spec, down, WeightType::F16), dir.path().join("donor.gguf"));
    let plain = |model: &Path| trace(&mut load(reloading::options(model, Manage::Experts)));
    let (before, after) = (plain(&base), plain(&donor));
    let mut engine = load(with_copies(&base, &servers, Manage::Experts, HotSplit::Even));
    let slots = |engine: &Engine| {
        let report = engine.hot_experts().unwrap();
        on(&report)
            .into_iter()
            .map(|layer| layer.iter().map(|(_, slots)| *slots).collect())
            .collect::<Vec<Vec<u32>>>()
    };
    assert!(trace(&mut engine) == before && trace(&mut engine) == before);
    let (at_first, used) = (slots(&engine), engine.hot_totals().unwrap().hot);
    engine.swap(&[from_file(down, &donor)]).unwrap();
    assert!(trace(&mut engine) == after && trace(&mut engine) == after);
    let swapped = slots(&engine);
    // Larger experts: fewer slots on each device, in its own memory.
    assert!(swapped[1].iter().sum::<u32>() < at_first[1].iter().sum(), "{at_first:?}, {swapped:?}");
    assert!(swapped[1].iter().zip(&at_first[1]).all(|(now, then)| now <= then), "{at_first:?}, {swapped:?}");
    assert_eq!((&swapped[0], &swapped[2..]), (&at_first[0], &at_first[2..]));
    assert!(engine.hot_totals().unwrap().hot > used);
    engine.swap(&[original(down)]).unwrap();
    assert!(trace(&mut engine) == before);
    assert_eq!(slots(&engine), at_first);
    // A device is lost while slots are made again: the other one has them.
    servers.pop();
    engine.swap(&[from_file(down, &donor)]).unwrap();
    assert!(trace(&mut engine) == after && trace(&mut engine) == after);
    let report = engine.hot_experts().unwrap();
    // A larger expert may not fit into what the layer has there.
    let there = |layer: &HotLayerReport| layer.device == "RPC0" || layer.problem.is_some();
    assert!(report.layers.iter().all(there) && report.layers[0].held > 0, "{report:?}");
    engine.swap(&[original(down)]).unwrap();
    assert!(trace(&mut engine) == before);
}

#[test]
fn the_first_device_of_warm_has_the_hottest() {
    let (dir, servers) = (dir(), servers(2, MEMORY));
    let model = write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    let uses = {
        let mut engine = load(reloading::options(&model, Manage::Experts));
        generate(&mut engine, &mut |_| {});
        engine.learned(Reported::default()).unwrap()
    };
    // Each has the same room; nothing is exchanged.
    let pairs = |split: HotSplit| {
        let options = with_copies(&model, &servers, Manage::Experts, split);
        let cache = PerDevice::all(room(&model, 2));
        let hot = HotOptions { hot_cache: cache, hot_update: HotUpdate::Off, ..options.hot };
        let mut engine = load(Options { hot, ..options });
        engine.apply_learned(&uses, &mut || ControlFlow::Continue(())).unwrap();
        generate(&mut engine, &mut |_| {});
        let report = engine.hot_experts().unwrap();
        [report.lanes[0].1.pairs, report.lanes[1].1.pairs]
    };
    let (warm, even) = (pairs(HotSplit::Warm), pairs(HotSplit::Even));
    assert!(warm[0] > warm[1], "{warm:?}");
    assert!(warm[0].abs_diff(warm[1]) > even[0].abs_diff(even[1]), "{warm:?}, {even:?}");
    assert_eq!(warm.iter().sum::<u64>(), even.iter().sum::<u64>(), "the same experts in all");
}
