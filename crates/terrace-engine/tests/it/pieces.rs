//! Work that is done once per token, not once per piece, where devices compute parts of a graph;
//! and graphs that are taken apart once.
//!
//! The device is the stand-in of [`splits`](crate::splits), which computes with the CPU's kernels.

use crate::reloading::{self, dir, from_file, load, original, trace, with, write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_backend::PieceCounts;
use terrace_engine::options::{DeviceOptions, HotOptions, RecordOptions};
use terrace_engine::{Engine, Options};
use terrace_ggml::llama::Sampling;
use terrace_ggml::testing::stand_in::stand_in;
use terrace_model::ByteSize;
use terrace_plan::{HotSize, Manage, PerDevice};
use terrace_testkit::{Arch, Spec, WeightType};

/// Experts streamed; `layers` layers on the device, experts of the first `host_experts` not.
fn options(model: &Path, layers: u32, host_experts: u32) -> Options {
    terrace_testkit::needs_own_process();
    stand_in(ByteSize::gib(1));
    let base = reloading::options(model, Manage::Experts);
    Options {
        devices: DeviceOptions { n_gpu_layers: Some(layers), n_cpu_moe: Some(host_experts), ..base.devices },
        hot: HotOptions { hot_cache: PerDevice::all(HotSize::Off), ..base.hot },
        ..base
    }
}

fn model(dir: &tempfile::TempDir, arch: Arch) -> PathBuf {
    write(&Spec::new(arch), dir.path().join("model.gguf"))
}

fn generate(engine: &mut Engine, text: &str, count: usize) -> Vec<i32> {
    let prompt = engine.tokenize(text, true, false).unwrap();
    let mut session = engine.session();
    let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
    engine.generate(&mut session, &prompt, Some(count), &Sampling::greedy(), go_on).unwrap().tokens
}

/// The pieces that a generation of `count` tokens takes.
fn pieces(engine: &mut Engine, count: usize) -> PieceCounts {
    let before = engine.piece_counts();
    generate(engine, "The water goes down", count);
    let after = engine.piece_counts();
    PieceCounts { computed: after.computed - before.computed, scanned: after.scanned - before.scanned }
}

mod a_graph_is_taken_apart_once {
    use terrace_testkit::Arch;
    terrace_testkit::each!(super::taken_apart: qwen3moe = Arch::Qwen3Moe, gpt_oss = Arch::GptOss, llama = Arch::Llama);
}

fn taken_apart(arch: Arch) {
    let dir = dir();
    let model = model(&dir, arch);
    // No layer on the device, half of them, and all but their experts.
    for (layers, host_experts) in [(0, 0), (2, 0), (99, u32::MAX)] {
        let mut engine = load(options(&model, layers, host_experts));
        let [few, many] = [4, 12].map(|count| pieces(&mut engine, count));
        // The number of tokens does not matter: new are the graph of the prompt, and that of the
        // tokens after it.
        assert_eq!(few.scanned, many.scanned, "{arch}, {layers} layers: {few:?}, {many:?}");
        // A graph for the prompt, and one for each token but the last.
        let each = (many.computed - few.computed) / 8;
        assert_eq!(many.computed - few.computed, 8 * each, "{arch}, {layers} layers: {few:?}, {many:?}");
        assert_eq!(few.scanned, few.computed - 2 * each, "{arch}, {layers} layers: {few:?}, {many:?}");
        let several = layers == 99 && arch != Arch::Llama;
        assert!(if several { each > 3 } else { each <= 2 }, "{arch}, {layers} layers: {each} pieces");
    }
}

#[test]
fn a_pass_is_counted_once() {
    let dir = dir();
    let model = model(&dir, Arch::Qwen3Moe);
    let traced = |layers, host_experts| {
        let path = dir.path().join(format!("{layers}.trace"));
        let base = options(&model, layers, host_experts);
        let record = RecordOptions { trace: Some(path.clone()), ..base.record };
        let mut engine = load(Options { record, ..base });
        let tokens = generate(&mut engine, "The water goes down", 12);
        engine.save_trace().unwrap().unwrap();
        (tokens, terrace_model::trace::Trace::read(&std::fs::read(path).unwrap()).unwrap())
    };
    let (tokens, alone) = traced(0, 0);
    let (same, beside) = traced(99, u32::MAX);
    assert_eq!(tokens, same);
    // The routers' choices, pass by pass, are those of a run without a device.
    assert_eq!(alone.passes.len(), 12);
    assert_eq!(alone.passes, beside.passes);
}

/// llama.cpp makes each graph in the memory of the last one, so pieces of different graphs come from
/// the same addresses.
#[test]
fn graphs_that_change_in_place_are_noticed() {
    let dir = dir();
    let model = model(&dir, Arch::Qwen3Moe);
    let texts =
        ["The water", "goes down from one terrace to the next", "and", "the rice grows in all of them"];
    let answers = |layers, host_experts| {
        let mut engine = load(options(&model, layers, host_experts));
        let all: Vec<Vec<i32>> =
            (0..8).map(|nth| generate(&mut engine, texts[nth % 4], 1 + nth % 3)).collect();
        all
    };
    let golden = answers(0, 0);
    assert_eq!(answers(2, 0), golden);
    assert_eq!(answers(99, u32::MAX), golden);
}

#[test]
fn a_reload_is_noticed_in_every_piece() {
    let dir = dir();
    let spec = Spec::new(Arch::Qwen3Moe);
    let base = write(&spec, dir.path().join("base.gguf"));
    let tensor = "blk.1.ffn_down_exps.weight";
    let donor = write(&with(&spec, tensor, WeightType::Q5_0), dir.path().join("donor.gguf"));
    let fresh = |model: &Path| trace(&mut load(options(model, 99, u32::MAX)));
    let (before, after) = (fresh(&base), fresh(&donor));
    assert!(before != after);
    let mut engine = load(options(&base, 99, u32::MAX));
    assert!(trace(&mut engine) == before);
    engine.swap(&[from_file(tensor, &donor)]).unwrap();
    assert!(trace(&mut engine) == after);
    engine.swap(&[original(tensor)]).unwrap();
    assert!(trace(&mut engine) == before);
}
