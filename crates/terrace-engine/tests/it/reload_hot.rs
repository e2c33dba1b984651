//! Tensors of which a device has copies are replaced: from the next token on, the copies have the
//! new bytes in the new type.

use crate::reloading;
use crate::reloading::{dir, from_file, load, original, trace, with, write};
use std::path::Path;
use terrace_engine::{Engine, Options, Replacement};
use terrace_ggml::devices::devices;
use terrace_model::ByteSize;
use terrace_plan::Manage;
use terrace_testkit::rpc::RpcServer;
use terrace_testkit::{Arch, Spec, WeightType};

fn options(model: &Path, server: &RpcServer) -> Options {
    let (plain, server) = (reloading::options(model, Manage::Experts), std::slice::from_ref(server));
    reloading::copies(plain, server, ByteSize::mib(4), ByteSize::mib(1))
}

/// The trace of the file without devices.
fn fresh(model: &Path) -> reloading::Trace {
    trace(&mut load(reloading::options(model, Manage::Experts)))
}

/// Number of pairs of a layer that the device has computed.
fn hot(engine: &Engine, layer: usize) -> u64 {
    engine.hot_experts().unwrap().layers[layer].hot
}

fn free() -> ByteSize {
    devices().into_iter().find(|device| device.is_accelerator()).unwrap().memory().0
}

#[test]
fn copies_are_of_what_was_loaded_last() {
    let dir = dir();
    let server = RpcServer::start(ByteSize::mib(256)).unwrap();
    for (arch, tensors) in [
        (
            Arch::Qwen3Moe,
            &[
                ("blk.1.ffn_down_exps.weight", WeightType::Q8_0),
                ("blk.1.ffn_gate_exps.weight", WeightType::IQ2_XS),
                ("blk.2.ffn_up_exps.weight", WeightType::F16),
            ][..],
        ),
        (
            Arch::GptOss,
            &[
                ("blk.1.ffn_up_exps.weight", WeightType::Q8_0),
                ("blk.2.ffn_down_exps.weight", WeightType::Q4_0),
            ][..],
        ),
        (Arch::Gemma4, &[("blk.1.ffn_gate_up_exps.weight", WeightType::Q6_K)][..]),
    ] {
        let spec = Spec::new(arch);
        let base = write(&spec, dir.path().join(format!("{arch}.gguf")));
        let mut engine = load(options(&base, &server));
        let before = trace(&mut engine);
        assert!(before == fresh(&base), "{arch}");
        for &(tensor, ty) in tensors {
            let label = format!("{arch}: {tensor}");
            let layer: usize = tensor[4..5].parse().unwrap();
            let donor = write(&with(&spec, tensor, ty), dir.path().join("donor.gguf"));
            engine.swap(&[from_file(tensor, &donor)]).unwrap();
            let used = hot(&engine, layer);
            let swapped = trace(&mut engine);
            assert!(swapped != before, "{label}: the swap had no effect");
            assert!(swapped == fresh(&donor), "{label}: differs from a fresh load of the file");
            assert!(hot(&engine, layer) > used, "{label}: {:?}", engine.hot_experts());
            // Other values in the same type, so that old copies could be mistaken for new ones.
            let other = Spec { seed: 7, ..with(&spec, tensor, ty) };
            let mixed = write(&other, dir.path().join("other.gguf"));
            engine.swap(&[from_file(tensor, &mixed)]).unwrap();
            let mixed = trace(&mut engine);
            assert!(mixed != swapped, "{label}: the second swap had no effect");
            engine.swap(&[from_file(tensor, &donor)]).unwrap();
            assert!(trace(&mut engine) == swapped, "{label}");
            engine.swap(&[original(tensor)]).unwrap();
            assert!(trace(&mut engine) == before, "{label}: not what was loaded");
            assert!(engine.hot_experts().unwrap().layers.iter().all(|layer| layer.problem.is_none()));
        }
    }
}

/// The device holds the biases of all experts, which are resident weights.
#[test]
fn biases_are_replaced_there() {
    let dir = dir();
    let server = RpcServer::start(ByteSize::mib(64)).unwrap();
    let spec = Spec::new(Arch::GptOss);
    let base = write(&spec, dir.path().join("base.gguf"));
    let other = write(&Spec { seed: 7, ..spec }, dir.path().join("other.gguf"));
    let swap = [from_file("blk.1.ffn_gate_exps.bias", &other)];
    let mut engine = load(options(&base, &server));
    let before = trace(&mut engine);
    engine.swap(&swap).unwrap();
    let swapped = trace(&mut engine);
    let mut without = load(reloading::options(&base, Manage::Experts));
    without.swap(&swap).unwrap();
    assert!(swapped != before && swapped == trace(&mut without));
    assert!(hot(&engine, 1) > 0);
    engine.swap(&[original("blk.1.ffn_gate_exps.bias")]).unwrap();
    assert!(trace(&mut engine) == before);
}

#[test]
fn memory_of_the_device_stays_as_it_was() {
    let dir = dir();
    let server = RpcServer::start(ByteSize::mib(64)).unwrap();
    let spec = Spec::new(Arch::Qwen3Moe);
    let base = write(&spec, dir.path().join("base.gguf"));
    let mut engine = load(options(&base, &server));
    let golden = trace(&mut engine);
    let tensors = ["blk.0.ffn_up_exps.weight", "blk.2.ffn_down_exps.weight"];
    let donors: Vec<_> = tensors
        .iter()
        .map(|tensor| {
            write(&with(&spec, tensor, WeightType::Q8_0), dir.path().join(format!("{tensor}.gguf")))
        })
        .collect();
    let there: Vec<Replacement> =
        tensors.iter().zip(&donors).map(|(tensor, donor)| from_file(tensor, donor)).collect();
    let back: Vec<Replacement> = tensors.iter().map(|tensor| original(tensor)).collect();
    let mut seen = None;
    for round in 0..20 {
        engine.swap(&there).unwrap();
        let swapped = trace(&mut engine);
        let during = free();
        engine.swap(&back).unwrap();
        assert!(trace(&mut engine) == golden, "round {round}");
        let now = (swapped, during, free());
        let first = seen.get_or_insert_with(|| now.clone());
        assert!(*first == now, "round {round}: {:?} and {:?}", (first.1, first.2), (now.1, now.2));
    }
    drop(engine);
    assert_eq!(free(), ByteSize::mib(64));
}
