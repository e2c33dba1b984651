//! Copies of experts on a device: tokens and logits equal stock llama.cpp's, bit for bit, while
//! copies are exchanged.
//!
//! The device is ggml's RPC server on this machine. It computes with the CPU's kernels, so not a
//! bit may differ.

use crate::reloading;
use crate::reloading::{dir, load, write};
use std::path::Path;
use terrace_engine::options::{ComputeOptions, ContextOptions, MemoryOptions};
use terrace_engine::{Engine, Mode, Options};
use terrace_ggml::llama::Sampling;
use terrace_lanes::HotReport;
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};
use terrace_testkit::rpc::RpcServer;
use terrace_testkit::{Arch, Spec, WeightType};

const TEXTS: [&str; 3] = [
    "The water goes down from one terrace to the next, ",
    "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 ",
    "fn main() { println!(\"{}\", (0..10).sum::<u32>()); } // ",
];

/// Greedy tokens and bits of logits after each of several prompts.
fn traces(engine: &mut Engine) -> Vec<(Vec<i32>, Vec<u32>)> {
    let go_on = &mut |_: &[u8]| std::ops::ControlFlow::Continue(());
    let mut traces = Vec::new();
    for text in TEXTS {
        let mut session = engine.session();
        let tokens = engine.tokenize(text, true, false).unwrap();
        let generation =
            engine.generate(&mut session, &tokens, Some(20), &Sampling::greedy(), go_on).unwrap();
        let bits = engine.logits().unwrap().iter().map(|logit| logit.to_bits()).collect();
        traces.push((generation.tokens, bits));
    }
    traces
}

fn options(model: &Path) -> Options {
    Options {
        compute: ComputeOptions { threads: Some(2), ..reloading::options(model, Manage::Experts).compute },
        ..reloading::options(model, Manage::Experts)
    }
}

/// Room for about `count` experts of each layer.
fn slots(model: &Path, count: u64) -> ByteSize {
    let file = terrace_ggml::gguf::read(model).unwrap();
    let groups = terrace_plan::model::expert_groups(&file);
    // Plus 1 MiB for activations.
    let bundles: u64 = groups.iter().map(|group| group.bundle.bytes() * count).sum();
    ByteSize(bundles + (1 << 20))
}

fn with_device(model: &Path, server: &RpcServer, count: u64) -> Options {
    let server = std::slice::from_ref(server);
    reloading::copies(options(model), server, slots(model, count), ByteSize::mib(4))
}

fn check(spec: &Spec) -> HotReport {
    let dir = dir();
    let model = write(spec, dir.path().join("model.gguf"));
    let stock = traces(&mut load(Options {
        mode: Mode::Stock { repack: false },
        memory: MemoryOptions { ram_budget: Budget::Auto, ..options(&model).memory },
        ..options(&model)
    }));
    let server = RpcServer::start(ByteSize::mib(256)).unwrap();
    let mut engine = load(with_device(&model, &server, 3));
    let name = format!("{} with experts in {}", spec.arch, spec.expert_type.name());
    for round in 0..2 {
        let got = traces(&mut engine);
        assert!(got == stock, "{name}, round {round}: {:?}", engine.hot_experts());
    }
    let report = engine.hot_experts().unwrap();
    eprintln!("{name}: {report:?}");
    report
}

mod every_architecture_is_exact {
    terrace_testkit::each_moe_architecture!(super::one_architecture);
}

fn one_architecture(arch: Arch) {
    let report = check(&Spec::new(arch));
    assert!(report.layers.iter().all(|layer| layer.problem.is_none() && layer.held > 0), "{report:?}");
    assert!(report.totals.hot > 0 && report.totals.cold > 0 && report.totals.bypassed > 0, "{report:?}");
    assert!(report.totals.exchanged > 0 && report.totals.prefill_hot > 0, "{report:?}");
}

/// Graphs of a few tokens, each with its own rows, as they arise from several sequences or from
/// speculated tokens.
mod small_batches_are_exact {
    use terrace_testkit::Arch;
    terrace_testkit::each!(super::small_batches: qwen3moe = Arch::Qwen3Moe, gpt_oss = Arch::GptOss, gemma4 = Arch::Gemma4);
}

fn small_batches(arch: Arch) {
    let dir = dir();
    let model = write(&Spec::new(arch), dir.path().join("model.gguf"));
    let base = Options {
        context: ContextOptions { ubatch: Some(7), ..options(&model).context },
        compute: ComputeOptions { threads: Some(1), ..options(&model).compute },
        ..options(&model)
    };
    let mode = Mode::Stock { repack: false };
    let stock = traces(&mut load(Options {
        mode,
        memory: MemoryOptions { ram_budget: Budget::Auto, ..base.clone().memory },
        ..base.clone()
    }));
    let server = RpcServer::start(ByteSize::mib(256)).unwrap();
    let few = Options {
        context: ContextOptions { ubatch: base.context.ubatch, ..with_device(&model, &server, 4).context },
        compute: ComputeOptions { threads: base.compute.threads, ..with_device(&model, &server, 4).compute },
        ..with_device(&model, &server, 4)
    };
    let mut engine = load(few);
    for round in 0..2 {
        assert!(traces(&mut engine) == stock, "{arch}, round {round}: {:?}", engine.hot_experts());
    }
    let report = engine.hot_experts().unwrap();
    // Graphs of 7 tokens of a prompt are computed as those of decoding are, and counted as prefill.
    let totals = &report.totals;
    assert!(totals.hot > 0 && totals.cold > 0 && totals.prefill_hot > totals.bypassed, "{report:?}");
}

/// Each device has a band of the layers.
#[test]
fn two_devices_are_exact() {
    let dir = dir();
    let model = write(&Spec::new(Arch::Qwen3Next), dir.path().join("model.gguf"));
    let mode = Mode::Stock { repack: false };
    let threads = Some(1);
    let stock = traces(&mut load(Options {
        mode,
        compute: ComputeOptions { threads, ..options(&model).compute },
        memory: MemoryOptions { ram_budget: Budget::Auto, ..options(&model).memory },
        ..options(&model)
    }));
    let servers = [0, 1].map(|_| RpcServer::start(ByteSize::mib(64)).unwrap());
    let mut options = Options {
        compute: ComputeOptions { threads, ..with_device(&model, &servers[0], 3).compute },
        ..with_device(&model, &servers[0], 3)
    };
    options.devices.rpc.push(servers[1].endpoint().to_owned());
    let mut engine = load(options);
    assert!(traces(&mut engine) == stock, "{:?}", engine.hot_experts());
    let layers = engine.hot_experts().unwrap().layers;
    let devices: Vec<&str> = layers.iter().map(|layer| layer.device.as_str()).collect();
    assert_eq!(devices, ["RPC0", "RPC0", "RPC1", "RPC1"]);
    assert!(layers.iter().all(|layer| layer.hot > 0), "{layers:?}");
}

/// Types whose products ggml computes with other kernels, with `down` in a different type than
/// `gate` and `up`.
mod types_are_exact {
    use terrace_testkit::WeightType;
    terrace_testkit::each!(super::one_type:
        q8_0 = WeightType::Q8_0,
        iq4_xs = WeightType::IQ4_XS,
        mxfp4 = WeightType::MXFP4,
        f16 = WeightType::F16,
        bf16 = WeightType::BF16,
    );
}

fn one_type(ty: WeightType) {
    let spec =
        Spec { expert_type: ty, expert_down_type: Some(WeightType::Q6_K), ..Spec::new(Arch::Qwen3Moe) };
    assert!(check(&spec).totals.hot > 0);
}
