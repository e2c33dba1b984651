//! Copies of experts in slices on several devices: up to rounding, the sum of their results equals
//! the whole expert's, and borders move when a tensor is replaced by one of another block size.

use crate::reloading;
use crate::reloading::{Trace, dir, from_file, load, original, servers, trace, with, with_copies, write};
use std::path::Path;
use terrace_engine::Engine;
use terrace_ggml::devices::devices;
use terrace_model::ByteSize;
use terrace_plan::Manage;
use terrace_testkit::rpc::RpcServer;
use terrace_testkit::{Arch, Spec, WeightType};

/// The trace of the file without devices.
fn plain(model: &Path) -> Trace {
    trace(&mut load(reloading::options(model, Manage::Experts)))
}

/// The FFN dimension of 768 is cut at 384 in blocks of 32, and at 256 in blocks of 256.
fn spec(arch: Arch) -> Spec {
    Spec { expert_ff: 768, expert_type: WeightType::Q8_0, ..Spec::new(arch) }
}

/// The largest difference of logits, as a fraction of the largest logit.
fn apart(a: &[u32], b: &[u32]) -> f32 {
    let floats = |bits: &[u32]| bits.iter().map(|bits| f32::from_bits(*bits)).collect::<Vec<f32>>();
    let (a, b) = (floats(a), floats(b));
    let largest = a.iter().fold(0f32, |largest, logit| largest.max(logit.abs()));
    let differences = a.iter().zip(&b).map(|(a, b)| (a - b).abs());
    let worst =
        |worst: f32, difference: f32| if difference.is_nan() { f32::INFINITY } else { worst.max(difference) };
    differences.fold(0f32, worst) / largest
}

/// Asserts that tokens are equal and logits differ only by rounding.
fn assert_same(got: &Trace, expected: &Trace, label: &str) {
    let apart = apart(&got.end, &expected.end);
    eprintln!("{label}: {apart}");
    assert_eq!(got.tokens, expected.tokens, "{label}");
    assert!(apart < 0.03, "{label}: logits differ by {apart}");
}

/// Generates until all used experts have copies, and then returns the trace.
fn warm(engine: &mut Engine) -> Trace {
    trace(engine);
    trace(engine)
}

/// Number of pairs that devices have computed. Asserts that these devices hold slices of all
/// layers.
fn hot(engine: &Engine, devices: &str) -> u64 {
    let report = engine.hot_experts().unwrap();
    for layer in &report.layers {
        assert!(layer.problem.is_none() && layer.held > 0 && layer.device == devices, "{report:?}");
    }
    report.totals.hot
}

mod slices_add_up_in_every_architecture {
    terrace_testkit::each_moe_architecture!(super::adds_up);
}

fn adds_up(arch: Arch) {
    let (dir, servers) = (dir(), servers(2, ByteSize::mib(256)));
    let model = write(&spec(arch), dir.path().join("model.gguf"));
    let mut engine = load(with_copies(&model, &servers));
    assert_same(&warm(&mut engine), &plain(&model), arch.name());
    assert!(hot(&engine, "RPC0 + RPC1") > 50, "{:?}", engine.hot_experts());
    assert!(engine.hot_totals().unwrap().prefill_hot > 0, "{:?}", engine.hot_experts());
}

mod tensors_are_replaced_in_slices {
    use terrace_testkit::Arch;
    terrace_testkit::each!(super::on_two_devices: qwen3moe = Arch::Qwen3Moe, gpt_oss = Arch::GptOss);
    terrace_testkit::each!(super::on_three_devices: mixtral = Arch::Mixtral, gemma4 = Arch::Gemma4);
}

fn on_two_devices(arch: Arch) {
    replaced(arch, &servers(2, ByteSize::mib(256)), "RPC0 + RPC1");
}

fn on_three_devices(arch: Arch) {
    replaced(arch, &servers(3, ByteSize::mib(256)), "RPC0 + RPC1 + RPC2");
}

fn replaced(arch: Arch, servers: &[RpcServer], devices: &str) {
    let dir = dir();
    let spec = spec(arch);
    let base = write(&spec, dir.path().join("base.gguf"));
    let before = plain(&base);
    let mut engine = load(with_copies(&base, servers));
    assert_same(&warm(&mut engine), &before, arch.name());
    let up = if arch == Arch::Gemma4 { "ffn_gate_up_exps" } else { "ffn_up_exps" };
    let name = |role: &str| format!("blk.1.{role}.weight");
    let cases: [&[(&str, WeightType)]; 4] = [
        &[("ffn_down_exps", WeightType::Q4_K)],
        &[("ffn_down_exps", WeightType::Q4_0), (up, WeightType::F16)],
        &[(up, WeightType::IQ2_XS)],
        &[("ffn_down_exps", WeightType::IQ1_M), (up, WeightType::Q6_K)],
    ];
    // The last two take a long time to quantise.
    let cases = if arch == Arch::Qwen3Moe { &cases[..] } else { &cases[..2] };
    for (n, case) in cases.iter().enumerate() {
        let label = format!("{arch}: {case:?}");
        let changed = case.iter().fold(spec.clone(), |spec, (role, ty)| with(&spec, &name(role), *ty));
        let donor = write(&changed, dir.path().join(format!("donor{n}.gguf")));
        let swaps: Vec<_> = case.iter().map(|(role, _)| from_file(&name(role), &donor)).collect();
        engine.swap(&swaps).unwrap();
        let used = hot(&engine, devices);
        let swapped = warm(&mut engine);
        assert!(apart(&swapped.end, &before.end) > 0.01, "{label}: the swap had no effect");
        assert_same(&swapped, &plain(&donor), &label);
        assert!(hot(&engine, devices) > used, "{label}: {:?}", engine.hot_experts());
        let back: Vec<_> = case.iter().map(|(role, _)| original(&name(role))).collect();
        engine.swap(&back).unwrap();
        assert_same(&warm(&mut engine), &before, &label);
    }
}

#[test]
fn borders_move_within_the_devices_memory() {
    let (dir, servers) = (dir(), servers(2, ByteSize::mib(64)));
    let spec = spec(Arch::Qwen3Moe);
    let base = write(&spec, dir.path().join("base.gguf"));
    let down = "blk.1.ffn_down_exps.weight";
    let donor = write(&with(&spec, down, WeightType::Q4_K), dir.path().join("donor.gguf"));
    let mut engine = load(with_copies(&base, &servers));
    let free = || -> Vec<ByteSize> {
        devices().into_iter().filter(|device| device.is_remote()).map(|device| device.memory().0).collect()
    };
    warm(&mut engine);
    let mut seen = None;
    for round in 0..30 {
        engine.swap(&[from_file(down, &donor)]).unwrap();
        trace(&mut engine);
        let during = free();
        engine.swap(&[original(down)]).unwrap();
        trace(&mut engine);
        let now = (during, free());
        let first = seen.get_or_insert_with(|| now.clone());
        assert_eq!(*first, now, "round {round}");
    }
    let (during, after) = seen.unwrap();
    // With the border at 256 of 768, the first device has a third of all matrices and the second
    // one two thirds.
    assert_eq!(after[0], after[1], "{after:?}");
    assert!(during[0] > after[0] && during[1] < during[0], "{during:?} and {after:?}");
    drop(engine);
    assert_eq!(free(), [ByteSize::mib(64); 2]);
}

/// One device has room for only some of the copies.
#[test]
fn a_device_that_is_full_leaves_the_cpu_to_it() {
    let dir = dir();
    let servers = [ByteSize::mib(64), ByteSize::mib(3)].map(|memory| RpcServer::start(memory).unwrap());
    let spec = spec(Arch::Qwen3Moe);
    let base = write(&spec, dir.path().join("base.gguf"));
    let mut engine = load(with_copies(&base, &servers));
    let before = plain(&base);
    assert_same(&warm(&mut engine), &before, "a small device");
    let report = engine.hot_experts().unwrap();
    assert!(report.totals.memory <= ByteSize::mib(6) && report.totals.hot > 0, "{report:?}");
    // A larger type has fewer slots in the same memory, possibly none.
    let down = "blk.1.ffn_down_exps.weight";
    let donor = write(&with(&spec, down, WeightType::F16), dir.path().join("donor.gguf"));
    engine.swap(&[from_file(down, &donor)]).unwrap();
    assert_same(&warm(&mut engine), &plain(&donor), "a larger type");
    let swapped = engine.hot_experts().unwrap();
    assert!(swapped.totals.memory <= report.totals.memory, "{swapped:?}");
    assert!(swapped.layers[1].slots < report.layers[1].slots, "{swapped:?}");
    engine.swap(&[original(down)]).unwrap();
    assert_same(&warm(&mut engine), &before, "back");
    assert_eq!(engine.hot_experts().unwrap().layers[1].slots, report.layers[1].slots);
}
