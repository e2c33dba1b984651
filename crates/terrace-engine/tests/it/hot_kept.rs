//! Copies of experts that stay in RAM, read or mapped: tokens and logits equal stock llama.cpp's,
//! bit for bit, while a device computes the hottest experts and copies are exchanged.

use crate::reloading;
use crate::reloading::{dir, from_file, load, original, servers, trace, with, write};
use std::ops::ControlFlow;
use std::path::Path;
use terrace_engine::options::{DeviceOptions, HotOptions, MemoryOptions};
use terrace_engine::{Engine, Mode, Options};
use terrace_ggml::llama::Sampling;
use terrace_lanes::{HotReport, HotUpdate};
use terrace_model::ByteSize;
use terrace_plan::{Budget, HotSize, Manage, PerDevice};
use terrace_store::UserDirs;
use terrace_testkit::rpc::RpcServer;
use terrace_testkit::{Arch, Spec, WeightType};

/// Everything in RAM, with room for a few experts of each layer on the servers' devices.
fn with_copies(model: &Path, servers: &[RpcServer], manage: Manage, bytes: ByteSize) -> Options {
    reloading::copies(reloading::options(model, manage), servers, bytes, ByteSize::mib(4))
}

/// Memory for about `count` experts of each layer.
fn room_for(model: &Path, count: u64) -> ByteSize {
    let file = terrace_ggml::gguf::read(model).unwrap();
    let groups = terrace_plan::model::expert_groups(&file);
    // Plus 1 MiB for activations.
    ByteSize(groups.iter().map(|group| group.bundle.bytes() * count).sum::<u64>() + (1 << 20))
}

/// Tokens are drawn: a random model's most likely ones soon repeat, and so do the experts, of which none is exchanged
/// then.
fn drawn() -> Sampling {
    Sampling { temp: 1.0, seed: 7, ..Sampling::default() }
}

/// Tokens, and bits of the logits after them.
fn generate(engine: &mut Engine) -> (Vec<i32>, Vec<u32>) {
    let mut session = engine.session();
    let prompt = engine.tokenize("The water goes down from one terrace to the next, ", true, false).unwrap();
    let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
    let tokens = engine.generate(&mut session, &prompt, Some(40), &drawn(), go_on).unwrap().tokens;
    (tokens, engine.logits().unwrap().iter().map(|logit| logit.to_bits()).collect())
}

fn stock(model: &Path) -> (Vec<i32>, Vec<u32>) {
    let plain = reloading::options(model, Manage::None);
    generate(&mut load(Options {
        mode: Mode::Stock { repack: false },
        memory: MemoryOptions { ram_budget: Budget::Auto, ..plain.memory },
        ..plain
    }))
}

fn check(spec: &Spec, manages: &[Manage]) -> Vec<HotReport> {
    let dir = dir();
    let model = write(spec, dir.path().join("model.gguf"));
    let golden = stock(&model);
    let servers = servers(1, ByteSize::mib(256));
    let of = |&manage: &Manage| {
        let mut engine = load(with_copies(&model, &servers, manage, room_for(&model, 3)));
        for round in 0..2 {
            assert!(generate(&mut engine) == golden, "{manage}, {round}: {:?}", engine.hot_experts());
        }
        engine.hot_experts().unwrap()
    };
    manages.iter().map(of).collect()
}

mod every_architecture_is_exact {
    terrace_testkit::each_moe_architecture!(super::one_architecture);
}

fn one_architecture(arch: Arch) {
    for report in check(&Spec::new(arch), &[Manage::None, Manage::Mapped]) {
        assert!(report.layers.iter().all(|layer| layer.problem.is_none() && layer.held > 0), "{report:?}");
        let totals = report.totals;
        assert!(totals.hot > 0 && totals.cold > 0 && totals.prefill_hot > 0, "{report:?}");
        assert!(totals.bypassed > 0, "{report:?}");
        assert!(totals.exchanged > 0 && totals.read_bytes == ByteSize::ZERO, "{report:?}");
    }
}

/// Types with kernels of Terrace's own, in both orders of activations, and types without.
mod types_are_exact {
    use terrace_testkit::WeightType;
    terrace_testkit::each!(super::one_type:
        q4_k = (WeightType::Q4_K, WeightType::Q6_K),
        q6_k = (WeightType::Q6_K, WeightType::Q4_K),
        mxfp4 = (WeightType::MXFP4, WeightType::Q8_0),
    );
}

fn one_type((ty, down): (WeightType, WeightType)) {
    let spec =
        Spec { expert_ff: 512, expert_type: ty, expert_down_type: Some(down), ..Spec::new(Arch::Qwen3Moe) };
    for report in check(&spec, &[Manage::None, Manage::Experts]) {
        assert!(report.totals.hot > 0 && report.totals.cold > 0, "{report:?}");
    }
}

/// The server ends while the model decodes: the CPU computes its pairs, with the same bits.
#[test]
fn a_server_that_ends_costs_no_token() {
    let dir = dir();
    let model = write(&Spec::new(Arch::GptOss), dir.path().join("model.gguf"));
    let golden = stock(&model).0;
    let mut servers = servers(1, ByteSize::mib(256));
    let mut engine = load(with_copies(&model, &servers, Manage::None, room_for(&model, 6)));
    assert_eq!(generate(&mut engine).0, golden);
    let mut session = engine.session();
    let prompt = engine.tokenize("The water goes down from one terrace to the next, ", true, false).unwrap();
    let mut count = 0;
    let sink = &mut |_: &[u8]| {
        count += 1;
        if count == 12 {
            servers.clear();
        }
        ControlFlow::Continue(())
    };
    let got = engine.generate(&mut session, &prompt, Some(40), &drawn(), sink).unwrap().tokens;
    assert_eq!(got, golden);
    let report = engine.hot_experts().unwrap();
    assert!(report.layers.iter().all(|layer| layer.problem.is_some() && layer.held == 0), "{report:?}");
    assert_eq!(generate(&mut engine).0, golden);
}

/// The copies are of the bytes that are in RAM now, in their type.
#[test]
fn replaced_tensors_are_copied_again() {
    let dir = dir();
    let spec = Spec::new(Arch::Qwen3Moe);
    let base = write(&spec, dir.path().join("base.gguf"));
    let tensor = "blk.1.ffn_down_exps.weight";
    let servers = servers(1, ByteSize::mib(256));
    for manage in [Manage::None, Manage::Mapped] {
        let plain = |model: &Path| trace(&mut load(reloading::options(model, manage)));
        let before = plain(&base);
        let mut engine = load(with_copies(&base, &servers, manage, room_for(&base, 6)));
        assert!(trace(&mut engine) == before);
        for (ty, seed) in [(WeightType::Q8_0, spec.seed), (WeightType::Q8_0, 7), (WeightType::F16, 3)] {
            let other = Spec { seed, ..with(&spec, tensor, ty) };
            let donor = write(&other, dir.path().join("donor.gguf"));
            let mut without = load(reloading::options(&base, manage));
            without.swap(&[from_file(tensor, &donor)]).unwrap();
            let swapped = trace(&mut without);
            engine.swap(&[from_file(tensor, &donor)]).unwrap();
            let used = engine.hot_experts().unwrap().layers[1].hot;
            assert!(swapped != before && trace(&mut engine) == swapped, "{manage}, {ty:?}, {seed}");
            assert!(engine.hot_experts().unwrap().layers[1].hot > used);
        }
        engine.swap(&[original(tensor)]).unwrap();
        assert!(trace(&mut engine) == before, "{manage}");
        assert!(engine.hot_experts().unwrap().layers.iter().all(|layer| layer.problem.is_none()));
    }
}

/// What earlier runs used is on the device before the first token.
#[test]
fn a_warm_start_fills_the_device() {
    let dir = dir();
    let model = write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    let servers = servers(1, ByteSize::mib(256));
    let mut hot = Vec::new();
    for _ in 0..2 {
        let plain = with_copies(&model, &servers, Manage::None, room_for(&model, 3));
        let user = UserDirs { config: None, cache: Some(dir.path().join("cache")) };
        let mut engine =
            load(Options { hot: HotOptions { hot_update: HotUpdate::Off, ..plain.hot }, user, ..plain });
        generate(&mut engine);
        hot.push(engine.hot_experts().unwrap().totals);
    }
    assert!(hot[0].hot == 0 && hot[1].hot > 0 && hot[1].filled > 0, "{hot:?}");
}

/// Layers on the device, with all experts in RAM and copies of the hottest in what is left: a pass
/// is computed in several graphs.
#[test]
fn dense_layers_on_the_device() {
    let dir = dir();
    let model = write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    let golden = stock(&model).0;
    let servers = servers(1, ByteSize::mib(64));
    let plain = with_copies(&model, &servers, Manage::Auto, ByteSize::ZERO);
    let mut engine = load(Options {
        devices: DeviceOptions { n_gpu_layers: Some(99), ..plain.devices },
        hot: HotOptions { hot_cache: PerDevice::all(HotSize::Max), ..plain.hot },
        ..plain
    });
    assert_eq!(generate(&mut engine).0, golden);
    let plan = engine.plan().placement.clone().unwrap();
    assert!(plan.layers.iter().all(|layer| layer.home == "RPC0"), "{plan:?}");
    assert!(plan.managed.is_empty(), "{plan:?}");
    let report = engine.hot_experts().unwrap();
    assert!(report.totals.hot > 0 && report.totals.exchanged + report.totals.filled > 0, "{report:?}");
}
