//! With a device in ggml's scheduler, Terrace's graphs fall into no more pieces than stock
//! llama.cpp's, and no fewer of their nodes run on the device.
//!
//! The device is a stand-in that computes with the CPU's kernels and asks for large batches as GPUs
//! do, so tokens are equal as well.

use crate::budgets::minimum;
use crate::reloading::{self, dir, from_file, load, original, with, write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use terrace_engine::options::{DeviceOptions, HotOptions, MemoryOptions, TestingOptions};
use terrace_engine::{Engine, Options};
use terrace_ggml::devices::{BufferTypeHandle, DeviceHandle};
use terrace_ggml::llama::{Context, ContextParams, LoadParams, Model, Sampling, Token};
use terrace_ggml::testing::params::context_params;
use terrace_ggml::testing::splits::{self, Split};
use terrace_ggml::testing::stand_in::{LARGE_BATCH, integrated_stand_in, stand_in};
use terrace_lanes::HotUpdate;
use terrace_model::ByteSize;
use terrace_plan::{Budget, HotSize, Manage, Note, PerDevice};
use terrace_testkit::{Arch, Spec, WeightType};

const TEXT: &str = "The water goes down from one terrace to the next, and the rice grows in all of them; \
                    whoever walks along their borders sees the sky in each, and the hills upside down. ";
const STEPS: usize = 4;
/// The tensors that llama.cpp's `--cpu-moe` keeps in RAM.
const EXPERTS: &str = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps";

/// What was computed, and how.
struct Run {
    tokens: Vec<i32>,
    prefill: Vec<Split>,
    decode: Vec<Split>,
}

/// Puts the graphs of a run together: the first is the prompt's, the last is a single token's.
fn run(tokens: Vec<i32>) -> Run {
    let mut graphs = splits::take();
    assert!(graphs.len() > 1, "{graphs:?}");
    let decode = graphs.pop().unwrap();
    Run { tokens, prefill: graphs.swap_remove(0), decode }
}

fn device() -> DeviceHandle {
    terrace_testkit::needs_own_process();
    // SAFETY: the only thread of this process that reads the environment.
    unsafe { splits::record() };
    stand_in(ByteSize::gib(1))
}

/// Stock llama.cpp with `layers` layers on the device, and experts of all layers in RAM if asked.
fn stock(path: &Path, layers: u32, experts_in_ram: bool) -> Run {
    let experts = (EXPERTS.to_owned(), BufferTypeHandle::cpu());
    let overrides = experts_in_ram.then_some(experts).into_iter().collect();
    let params = LoadParams { devices: vec![(device(), layers)], overrides, ..LoadParams::default() };
    let model = Arc::new(Model::load(path, &params).unwrap());
    let params = ContextParams { outputs: 1, ..context_params(256) };
    let mut tokens = model.vocab().tokenize(TEXT, true, false).unwrap();
    assert!(tokens.len() >= usize::try_from(LARGE_BATCH).unwrap(), "{}", tokens.len());
    let mut context = Context::new(model, &params, Arc::new(AtomicBool::new(false))).unwrap();
    splits::take();
    let mut chosen = Vec::new();
    for _ in 0..STEPS {
        context.decode(&mut tokens).unwrap();
        let logits = context.logits().unwrap();
        let best = (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
        chosen.push(i32::try_from(best).unwrap());
        tokens = vec![Token(i32::try_from(best).unwrap())];
    }
    let run = run(chosen);
    // Terrace, which the process may have used before, is no part of it.
    assert!(run.decode.iter().all(|split| split.device != "TERRACE"), "{:?}", devices(&run.decode));
    run
}

/// Options of a run with `layers` layers on the device.
fn options(model: &Path, layers: u32, manage: Manage) -> Options {
    let base = reloading::options(model, manage);
    Options {
        devices: DeviceOptions { n_gpu_layers: Some(layers), ..base.devices },
        hot: HotOptions { hot_cache: PerDevice::all(HotSize::Off), ..base.hot },
        ..base
    }
}

fn terrace(options: Options) -> Run {
    device();
    let mut engine = load(options);
    let tokens = engine.tokenize(TEXT, true, false).unwrap();
    let mut session = engine.session();
    splits::take();
    let go_on = &mut |_: &[u8]| std::ops::ControlFlow::Continue(());
    let generation = engine.generate(&mut session, &tokens, Some(STEPS), &Sampling::greedy(), go_on).unwrap();
    run(generation.tokens)
}

/// Number of nodes on the device.
fn there(graph: &[Split]) -> usize {
    graph.iter().filter(|split| split.device == "GPU0").map(|split| split.nodes.len()).sum()
}

fn devices(graph: &[Split]) -> Vec<&str> {
    graph.iter().map(|split| split.device.as_str()).collect()
}

fn compare(name: &str, ours: &Run, stock: &Run) {
    fewer_pieces(name, ours, stock);
    for (phase, ours, stock) in
        [("prefill", &ours.prefill, &stock.prefill), ("decode", &ours.decode, &stock.decode)]
    {
        assert!(there(ours) >= there(stock), "{name}, {phase}: {ours:?}; stock {stock:?}");
    }
}

fn fewer_pieces(name: &str, ours: &Run, stock: &Run) {
    assert_eq!(ours.tokens, stock.tokens, "{name}");
    for (phase, ours, stock) in
        [("prefill", &ours.prefill, &stock.prefill), ("decode", &ours.decode, &stock.decode)]
    {
        eprintln!(
            "{name}, {phase}: {} pieces, {} nodes on the device; stock: {}, {}",
            ours.len(),
            there(ours),
            stock.len(),
            there(stock)
        );
        assert!(
            ours.len() <= stock.len(),
            "{name}, {phase}: {:?}; stock {:?}",
            devices(ours),
            devices(stock)
        );
        assert!(ours.iter().all(|split| split.device != "CPU"), "{name}, {phase}: {:?}", devices(ours));
    }
}

mod layers_on_a_device {
    use terrace_testkit::Arch;
    terrace_testkit::each!(super::layers: qwen3moe = Arch::Qwen3Moe, gpt_oss = Arch::GptOss, llama = Arch::Llama, gemma4 = Arch::Gemma4, qwen3next = Arch::Qwen3Next);
}

/// `-ngl` 0, half, and all, with weights in RAM.
fn layers(arch: Arch) {
    let dir = dir();
    let model = write(&Spec::new(arch), dir.path().join("model.gguf"));
    for layers in [0, 2, 99] {
        let stock = stock(&model, layers, false);
        if layers == 0 {
            assert!(there(&stock.prefill) > 0, "nothing is offloaded");
        }
        let ours = terrace(options(&model, layers, Manage::None));
        compare(&format!("{arch}, {layers} layers"), &ours, &stock);
    }
}

/// Options of a run where all matrices stream through the least RAM.
fn streaming(model: &Path) -> Options {
    let base = options(model, 0, Manage::All);
    let ram_budget = Budget::Bytes(minimum(model, Manage::All));
    Options { memory: MemoryOptions { ram_budget, ..base.memory }, ..base }
}

/// The names of the matrices that a run streams.
fn streamed(options: Options) -> Vec<String> {
    load(options).plan().placement.as_ref().unwrap().streamed.clone()
}

/// Matrices that stream are offered to devices in large batches, like those in RAM.
#[test]
fn streamed_matrices_are_offered_like_those_in_ram() {
    device();
    let dir = dir();
    let model = write(&Spec::new(Arch::Llama), dir.path().join("model.gguf"));
    for (layers, streaming) in [(0, streaming(&model)), (2, options(&model, 2, Manage::All))] {
        let stock = stock(&model, layers, false);
        compare(&format!("{layers} layers, others streamed"), &terrace(streaming), &stock);
    }
    assert!(streamed(streaming(&model)).iter().any(|name| name.contains("ffn_down")));
    let off = streaming(&model);
    let devices = DeviceOptions { op_offload: false, ..off.devices };
    let left = terrace(Options { devices, ..off });
    assert_eq!(there(&left.prefill), 0, "unless switched off");
}

/// A streamed matrix that is replaced by one of another type is taken along as that type.
#[test]
fn a_replaced_matrix_is_offered_as_what_it_is() {
    device();
    let dir = dir();
    let spec = Spec::new(Arch::Llama);
    let model = write(&spec, dir.path().join("model.gguf"));
    let names = streamed(streaming(&model));
    let tensor = names.iter().find(|name| name.contains("ffn_down")).unwrap();
    let donor = write(&with(&spec, tensor, WeightType::Q4_0), dir.path().join("donor.gguf"));
    let logits = |engine: &mut Engine| -> Vec<u32> {
        let tokens = engine.tokenize(TEXT, true, false).unwrap();
        let mut session = engine.session();
        let go_on = &mut |_: &[u8]| std::ops::ControlFlow::Continue(());
        engine.generate(&mut session, &tokens, Some(1), &Sampling::greedy(), go_on).unwrap();
        engine.logits().unwrap().iter().map(|logit| logit.to_bits()).collect()
    };
    let mut engine = load(streaming(&model));
    let before = logits(&mut engine);
    engine.swap(&[from_file(tensor, &donor)]).unwrap();
    let swapped = logits(&mut engine);
    assert!(swapped != before, "the swap had no effect");
    assert!(swapped == logits(&mut load(streaming(&donor))), "differs from a fresh load of the file");
    engine.swap(&[original(tensor)]).unwrap();
    assert!(logits(&mut engine) == before, "not what was loaded");
}

/// A matrix that cannot be read ends the prompt with its error, not with what the device computes
/// without it.
#[test]
fn a_matrix_that_cannot_be_read_for_a_device_is_an_error() {
    device();
    let dir = dir();
    let model = write(&Spec::new(Arch::Llama), dir.path().join("model.gguf"));
    let base = streaming(&model);
    let bad = streamed(base.clone()).into_iter().find(|name| name.contains("ffn_up")).unwrap();
    let at = terrace_ggml::gguf::read(&model).unwrap().tensor(&bad).unwrap().extent.offset;
    let testing =
        TestingOptions { inject_fault: Some(format!("eio@bytes:{at}..{}", at + 1)), ..base.testing };
    let mut engine = load(Options { testing, ..base });
    let tokens = engine.tokenize(TEXT, true, false).unwrap();
    let mut session = engine.session();
    splits::take();
    let go_on = &mut |_: &[u8]| std::ops::ControlFlow::Continue(());
    let error = engine.generate(&mut session, &tokens, Some(1), &Sampling::greedy(), go_on).unwrap_err();
    let message = error.to_string();
    // "Input/output error" on Linux.
    let words = std::io::Error::from_raw_os_error(terrace_platform::errors::INPUT_OUTPUT).to_string();
    assert!(message.contains(&bad) && message.contains(&words), "{message}");
    let prompt = splits::take().swap_remove(0);
    assert!(there(&prompt) > 0, "it was read for the device: {prompt:?}");
}

mod experts_in_ram {
    use terrace_testkit::Arch;
    terrace_testkit::each!(super::experts: qwen3moe = Arch::Qwen3Moe, gpt_oss = Arch::GptOss);
}

/// All layers on the device except their experts, as with `--cpu-moe`; and experts streamed, with
/// copies of some on the device. Streamed experts are not offered to devices in large batches.
fn experts(arch: Arch) {
    let dir = dir();
    let model = write(&Spec::new(arch), dir.path().join("model.gguf"));
    let expected = stock(&model, 99, true);
    let base = options(&model, 99, Manage::None);
    let devices = DeviceOptions { cpu_moe: true, ..base.devices };
    let kept = terrace(Options { devices, ..base });
    compare(&format!("{arch}, experts in RAM"), &kept, &expected);

    let expected = stock(&model, 0, true);
    let base = options(&model, 0, Manage::Experts);
    let cache = PerDevice::all(HotSize::Bytes(ByteSize::mib(4)));
    let hot = HotOptions { hot_cache: cache, hot_update: HotUpdate::Bytes(ByteSize::mib(4)), ..base.hot };
    let streamed = terrace(Options { hot, ..base });
    fewer_pieces(&format!("{arch}, experts streamed and copied"), &streamed, &expected);
}

/// A device without memory of its own computes large batches, and its plan says so.
#[test]
fn an_integrated_device_computes_large_batches() {
    terrace_testkit::needs_own_process();
    // SAFETY: the only thread of this process that reads the environment.
    unsafe { splits::record() };
    integrated_stand_in(ByteSize::gib(1));
    let dir = dir();
    let model = write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    let run_with = |op_offload| {
        let base = reloading::options(&model, Manage::None);
        let devices = DeviceOptions { op_offload, ..base.devices };
        let mut engine = load(Options { devices, ..base });
        let plan = engine.plan().placement.clone().unwrap();
        assert!(plan.devices.is_empty(), "it holds nothing");
        let tokens = engine.tokenize(TEXT, true, false).unwrap();
        let mut session = engine.session();
        splits::take();
        let go_on = &mut |_: &[u8]| std::ops::ControlFlow::Continue(());
        let sampling = Sampling::greedy();
        let answer = engine.generate(&mut session, &tokens, Some(STEPS), &sampling, go_on).unwrap();
        (run(answer.tokens), plan.estimate.unwrap().notes)
    };
    let (with, notes) = run_with(true);
    assert!(there(&with.prefill) > 0 && there(&with.decode) == 0);
    let device = || "GPU0".to_owned();
    let tokens = u32::try_from(LARGE_BATCH).unwrap();
    assert!(notes.contains(&Note::UnifiedBatches { device: device(), tokens }), "{notes:?}");
    let (without, notes) = run_with(false);
    assert_eq!((there(&without.prefill), &without.tokens), (0, &with.tokens));
    assert!(notes.contains(&Note::UnifiedUnused { device: device() }), "{notes:?}");
}
