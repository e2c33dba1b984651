//! Tensors on devices are replaced: on the device if it has room, otherwise in main memory.

use crate::reloading;
use crate::reloading::{dir, from_file, load, original, peak, stays_flat, trace, with, write};
use std::path::Path;
use terrace_engine::options::{DeviceOptions, MemoryOptions};
use terrace_engine::{Options, Replacement};
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage, PerDevice};
use terrace_testkit::rpc::{RpcServer, resident};
use terrace_testkit::{Arch, Spec, WeightType};

fn options(model: &Path, server: &RpcServer, layers: u32, manage: Manage) -> Options {
    let rpc = vec![server.endpoint().to_owned()];
    let device_layers = Some(layers);
    let ram_budget = if manage == Manage::None { Budget::Auto } else { Budget::Bytes(ByteSize::mib(8)) };
    Options {
        devices: DeviceOptions {
            rpc,
            n_gpu_layers: device_layers,
            ..reloading::options(model, Manage::None).devices
        },
        memory: MemoryOptions {
            stream: manage,
            ram_budget,
            ..reloading::options(model, Manage::None).memory
        },
        ..reloading::options(model, Manage::None)
    }
}

const ON_DEVICE: [(&str, WeightType); 5] = [
    ("blk.2.ffn_down_exps.weight", WeightType::Q8_0),
    ("blk.2.ffn_gate_exps.weight", WeightType::IQ2_XS),
    ("blk.2.attn_q.weight", WeightType::Q4_0),
    ("blk.2.attn_output.weight", WeightType::F16),
    ("blk.1.ffn_up_exps.weight", WeightType::Q6_K),
];

#[test]
fn a_thousand_swaps_leave_a_device_its_memory() {
    let dir = dir();
    let servers = [RpcServer::start(ByteSize::mib(512)).unwrap()];
    let spec = Spec::new(Arch::Qwen3Moe);
    let base = write(&spec, dir.path().join("base.gguf"));
    let mut engine = load(options(&base, &servers[0], 3, Manage::None));
    let there = |(tensor, ty): (&str, WeightType)| {
        from_file(tensor, &write(&with(&spec, tensor, ty), dir.path().join(format!("{tensor}.gguf"))))
    };
    let there: Vec<Replacement> = ON_DEVICE[..3].iter().copied().map(there).collect();
    stays_flat(&mut engine, 1, &there, 1000);
}

#[test]
fn weights_on_a_device_are_replaced_there() {
    let dir = dir();
    let server = RpcServer::start(ByteSize::mib(512)).unwrap();
    for arch in [Arch::Qwen3Moe, Arch::GptOss, Arch::Llama] {
        let spec = Spec::new(arch);
        let base = write(&spec, dir.path().join(format!("{arch}.gguf")));
        let file = terrace_ggml::gguf::read(&base).unwrap();
        let last = spec.layers - 1;
        // The last layers are on the device, the others here, streamed or not.
        for (layers, manage) in [(3, Manage::None), (2, Manage::Ffn)] {
            let mut engine = load(options(&base, &server, layers, manage));
            let before = trace(&mut engine);
            for (tensor, ty) in ON_DEVICE {
                let tensor = &tensor.replace("blk.2", &format!("blk.{last}"));
                if file.tensor(tensor).is_none() {
                    continue;
                }
                let donor = write(&with(&spec, tensor, ty), dir.path().join("donor.gguf"));
                let label = format!("{arch}, {layers} layers, {manage}: {tensor}");
                let report = engine.swap(&[from_file(tensor, &donor)]).unwrap();
                assert_ne!(report.swapped[0].state, "original", "{label}");
                let swapped = trace(&mut engine);
                assert!(swapped != before, "{label}: the swap had no effect");
                let fresh = trace(&mut load(options(&donor, &server, layers, manage)));
                assert!(swapped == fresh, "{label}: differs from a fresh load of the file");
                let report = engine.swap(&[original(tensor)]).unwrap();
                assert_eq!(report.bytes(), ByteSize::ZERO, "{label}");
                assert!(trace(&mut engine) == before, "{label}: not what was loaded");
            }
        }
    }
}

/// However much goes to a device, only a part of it is in main memory at a time, and no RAM budget counts
/// it.
#[test]
fn what_goes_to_a_device_passes_through_memory_in_parts() {
    let dir = dir();
    let server = RpcServer::start(ByteSize::gib(1)).unwrap();
    let spec = Spec { layers: 2, experts: 32, expert_ff: 1536, ..Spec::new(Arch::Qwen3Moe) };
    let model = write(&spec, dir.path().join("model.gguf"));
    let tensors = ["gate", "up", "down"].map(|role| format!("blk.1.ffn_{role}_exps.weight"));
    let donor = Spec { seed: spec.seed + 1, ..spec.clone() };
    let donor = write(&donor, dir.path().join("donor.gguf"));
    let mut options = options(&model, &server, 2, Manage::Experts);
    options.memory.ram_budget = Budget::Bytes(ByteSize::mib(12));
    let mut engine = load(options);
    let before = trace(&mut engine);
    peak();
    let there = resident("self").unwrap();
    let all: Vec<Replacement> = tensors.iter().map(|tensor| from_file(tensor, &donor)).collect();
    let report = engine.swap(&all).unwrap();
    let peak = peak();
    assert!(report.swapped.iter().all(|swapped| swapped.state == "detached"), "{report}");
    assert!(report.bytes() > ByteSize::mib(18), "{report}");
    // A part, the message that carries it, and little more.
    assert!(peak < there + ByteSize::mib(14), "{peak} with {there} before");
    assert!(trace(&mut engine) != before);
    engine.swap(&tensors.iter().map(|tensor| original(tensor)).collect::<Vec<_>>()).unwrap();
    assert!(trace(&mut engine) == before);
}

#[test]
fn what_a_full_device_cannot_hold_is_in_main_memory() {
    let dir = dir();
    let spec = Spec::new(Arch::Qwen3Moe);
    let base = write(&spec, dir.path().join("base.gguf"));
    let size = terrace_ggml::gguf::read(&base).unwrap().size();
    // Room for the model, its context, and little more.
    let server = RpcServer::start(ByteSize(size.bytes() + (5 << 20))).unwrap();
    let mut options = options(&base, &server, 3, Manage::None);
    options.devices.vram_budget = PerDevice::all(Budget::Bytes(ByteSize::gib(1)));
    let mut engine = load(options);
    let before = trace(&mut engine);
    let mut states = Vec::new();
    let tensors: Vec<String> = ["gate", "up", "down"]
        .iter()
        .flat_map(|role| [1, 2].map(|layer| format!("blk.{layer}.ffn_{role}_exps.weight")))
        .collect();
    let mut all: Vec<Replacement> = Vec::new();
    for tensor in &tensors {
        let donor = write(&with(&spec, tensor, WeightType::F16), dir.path().join(format!("{tensor}.gguf")));
        let report = engine.swap(&[from_file(tensor, &donor)]).unwrap();
        states.push(report.swapped[0].state);
        all.push(original(tensor));
    }
    assert!(states.contains(&"fallback-cpu"), "{states:?}");
    let mut f16 = spec.clone();
    f16.overrides = tensors.iter().map(|tensor| (tensor.clone(), WeightType::F16)).collect();
    let whole = write(&f16, dir.path().join("f16.gguf"));
    assert!(trace(&mut engine) == trace(&mut load(reloading::options(&whole, Manage::None))), "{states:?}");
    let report = engine.swap(&all).unwrap();
    assert_eq!(report.bytes(), ByteSize::ZERO);
    assert!(trace(&mut engine) == before);
}
