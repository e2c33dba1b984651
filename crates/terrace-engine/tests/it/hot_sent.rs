//! Experts without a copy that are sent to a device for a token, and layers without copies: tokens and
//! logits equal stock llama.cpp's, bit for bit.
//!
//! The devices compute with the CPU's kernels: ggml's RPC server on this machine, and a stand-in of type
//! GPU.

use crate::reloading;
use crate::reloading::{dir, from_file, load, original, servers, trace, with, write};
use std::ops::ControlFlow;
use std::path::Path;
use terrace_engine::options::{ContextOptions, DeviceOptions, MemoryOptions, TestingOptions};
use terrace_engine::{Engine, HotPlan, Mode, Options};
use terrace_ggml::llama::Sampling;
use terrace_ggml::testing::stand_in::stand_in;
use terrace_lanes::{HotTotals, Sending};
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};
use terrace_testkit::{Arch, Spec, WeightType};

const TEXTS: [&str; 2] =
    ["The water goes down from one terrace to the next, ", "1 2 3 4 5 6 7 8 9 10 11 12 13 "];
/// Room for a part of the experts of [`many`], and for transit slots.
const SOME: ByteSize = ByteSize::mib(3);

/// A model with twice the usual experts, of half the size.
fn many(arch: Arch) -> Spec {
    Spec { experts: 16, expert_ff: 256, ..Spec::new(arch) }
}

/// Greedy tokens and bits of logits after each of several prompts.
fn traces(engine: &mut Engine) -> Vec<(Vec<i32>, Vec<u32>)> {
    let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
    let mut traces = Vec::new();
    for text in TEXTS {
        let mut session = engine.session();
        let tokens = engine.tokenize(text, true, false).unwrap();
        let answer = engine.generate(&mut session, &tokens, Some(12), &Sampling::greedy(), go_on).unwrap();
        traces.push((answer.tokens, engine.logits().unwrap().iter().map(|logit| logit.to_bits()).collect()));
    }
    traces
}

/// Plain llama.cpp with the same graphs, on the CPU.
fn stock(options: &Options) -> Options {
    let plain = reloading::options(&options.model, Manage::None);
    Options {
        mode: Mode::Stock { repack: false },
        memory: MemoryOptions { ram_budget: Budget::Auto, ..plain.memory },
        context: options.context,
        ..plain
    }
}

fn sending(options: Options, sending: Sending) -> Options {
    Options { testing: TestingOptions { sending, ..options.testing }, ..options }
}

fn graphs_of(options: Options, tokens: u32) -> Options {
    Options { context: ContextOptions { ubatch: Some(tokens), ..options.context }, ..options }
}

fn totals(engine: &Engine) -> HotTotals {
    engine.hot_totals().unwrap()
}

mod misses_are_sent {
    terrace_testkit::each_moe_architecture!(super::every_miss);
}

/// Every expert of a token that has no copy is sent, whether it streams or is in RAM.
fn every_miss(arch: Arch) {
    let (dir, servers) = (dir(), servers(1, ByteSize::mib(256)));
    let model = write(&many(arch), dir.path().join("model.gguf"));
    let golden = traces(&mut load(stock(&reloading::options(&model, Manage::None))));
    for manage in [Manage::Experts, Manage::None] {
        let copies = reloading::copies(reloading::options(&model, manage), &servers, SOME, ByteSize::kib(64));
        let mut engine = load(sending(copies, Sending::Always));
        for round in 0..2 {
            assert!(traces(&mut engine) == golden, "{arch}, {manage}, {round}: {:?}", totals(&engine));
        }
        let used = totals(&engine);
        assert!(used.sent > 0 && used.hot > 0 && used.cold == 0, "{arch}, {manage}: {used:?}");
        assert!(used.sent_bytes > ByteSize::ZERO, "{used:?}");
    }
}

/// Graphs of several tokens, in which an expert has several pairs.
mod small_batches {
    use terrace_testkit::Arch;
    terrace_testkit::each!(super::batches: qwen3moe = Arch::Qwen3Moe, gpt_oss = Arch::GptOss, gemma4 = Arch::Gemma4);
}

fn batches(arch: Arch) {
    let (dir, servers) = (dir(), servers(1, ByteSize::mib(256)));
    let model = write(&many(arch), dir.path().join("model.gguf"));
    let plain = graphs_of(reloading::options(&model, Manage::Experts), 7);
    let golden = traces(&mut load(stock(&plain)));
    for how in [Sending::Always, Sending::Measured] {
        let copies = reloading::copies(plain.clone(), &servers, SOME, ByteSize::kib(64));
        let mut engine = load(sending(copies, how));
        assert!(traces(&mut engine) == golden, "{arch}, {how:?}: {:?}", totals(&engine));
        let used = totals(&engine);
        assert!(how == Sending::Measured || used.prefill_sent > 100, "{used:?}");
        // Those of prompts, however few tokens their graphs have.
        assert!(used.bypassed + used.prefill_hot + used.prefill_sent > 0, "{used:?}");
    }
}

/// A device that computes on this machine's own cores gains nothing, so little is sent.
#[test]
fn what_does_not_pay_is_hardly_sent() {
    let (dir, servers) = (dir(), servers(1, ByteSize::mib(256)));
    let model = write(&many(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    let golden = traces(&mut load(stock(&reloading::options(&model, Manage::None))));
    let wanted = reloading::options(&model, Manage::Experts);
    let mut engine = load(reloading::copies(wanted, &servers, SOME, ByteSize::ZERO));
    for round in 0..8 {
        assert!(traces(&mut engine) == golden, "{round}: {:?}", totals(&engine));
    }
    let used = totals(&engine);
    assert!(used.sent * 10 < used.cold, "{used:?}");
}

/// Options of a run whose experts stream, beside a device of type GPU that holds nothing.
fn beside_gpu(model: &Path, how: Sending) -> Options {
    stand_in(ByteSize::gib(1));
    let plain = reloading::options(model, Manage::Experts);
    let devices = DeviceOptions { n_gpu_layers: Some(0), ..plain.devices };
    sending(Options { devices, ..plain }, how)
}

fn hot(engine: &Engine) -> HotPlan {
    engine.plan().hot.clone().unwrap()
}

mod layers_without_copies {
    use terrace_testkit::Arch;
    terrace_testkit::each!(super::alone: qwen3moe = Arch::Qwen3Moe, gpt_oss = Arch::GptOss, gemma4 = Arch::Gemma4, qwen3next = Arch::Qwen3Next);
}

/// A device that holds no copies has transit slots alone.
fn alone(arch: Arch) {
    terrace_testkit::needs_own_process();
    let dir = dir();
    let model = write(&many(arch), dir.path().join("model.gguf"));
    let golden = trace(&mut load(stock(&reloading::options(&model, Manage::None))));
    for how in [Sending::Always, Sending::Measured] {
        let mut engine = load(beside_gpu(&model, how));
        let plan = hot(&engine);
        let (on, planned) = (&plan.transit, engine.plan().placement.as_ref().unwrap().transit.clone());
        assert!(plan.devices.is_empty() && on.len() == 1 && planned.len() == 1, "{plan:?}, {planned:?}");
        assert_eq!((on[0].device.as_str(), on[0].layers as usize), ("GPU0", planned[0].layers.len()));
        assert!(on[0].bytes > ByteSize::ZERO && on[0].bytes <= ByteSize::mib(512), "{plan:?}");
        for round in 0..3 {
            assert!(trace(&mut engine) == golden, "{arch}, {how:?}, {round}: {:?}", totals(&engine));
        }
        let used = totals(&engine);
        assert!(used.prefill_sent > 0 && used.hot == 0 && used.prefill_hot == 0, "{arch}: {used:?}");
        assert!(how == Sending::Measured || (used.sent > 0 && used.cold == 0), "{arch}: {used:?}");
        let report = engine.hot_experts().unwrap();
        assert!(report.layers.iter().all(|layer| layer.slots == 0 && layer.problem.is_none()), "{report:?}");
    }
}

#[test]
fn without_op_offload_there_is_no_lane() {
    terrace_testkit::needs_own_process();
    let dir = dir();
    let model = write(&many(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    let wanted = beside_gpu(&model, Sending::Measured);
    let devices = DeviceOptions { op_offload: false, ..wanted.devices };
    let engine = load(Options { devices, ..wanted });
    assert!(hot(&engine).transit.is_empty() && engine.hot_totals().is_none(), "{:?}", hot(&engine));
}

/// What is sent is what is loaded now, also of another type.
#[test]
fn a_reload_of_a_layer_without_copies() {
    terrace_testkit::needs_own_process();
    let dir = dir();
    let spec = many(Arch::Qwen3Moe);
    let base = write(&spec, dir.path().join("base.gguf"));
    let tensor = "blk.1.ffn_up_exps.weight";
    let donor = write(&with(&spec, tensor, WeightType::Q8_0), dir.path().join("donor.gguf"));
    let plain = |model: &Path| trace(&mut load(stock(&reloading::options(model, Manage::None))));
    let (before, after) = (plain(&base), plain(&donor));
    assert!(before != after);
    let mut engine = load(beside_gpu(&base, Sending::Always));
    for _ in 0..2 {
        assert!(trace(&mut engine) == before);
        engine.swap(&[from_file(tensor, &donor)]).unwrap();
        let used = totals(&engine);
        assert!(trace(&mut engine) == after, "{:?}", engine.hot_experts());
        let later = totals(&engine);
        assert!(later.prefill_sent > used.prefill_sent && later.sent > used.sent, "{later:?}");
        assert_eq!(later.cold, used.cold, "{:?}", engine.hot_experts());
        engine.swap(&[original(tensor)]).unwrap();
    }
    assert!(trace(&mut engine) == before);
}

/// Experts in RAM of large batches: ggml's offload and lanes take turns until it is known who is faster,
/// and both give the same bits.
mod large_batches_of_experts_in_ram {
    use terrace_testkit::Arch;
    terrace_testkit::each!(super::contest: qwen3moe = Arch::Qwen3Moe, gpt_oss = Arch::GptOss, gemma4 = Arch::Gemma4);
}

fn contest(arch: Arch) {
    terrace_testkit::needs_own_process();
    let dir = dir();
    let model = write(&many(arch), dir.path().join("model.gguf"));
    // Of another length each time: llama.cpp computes graphs of the same one again, as they are.
    let after = |engine: &mut Engine, length: usize| -> Vec<u32> {
        let tokens = engine.tokenize(&TEXTS.concat().repeat(3), true, false).unwrap();
        let mut session = engine.session();
        let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
        engine.generate(&mut session, &tokens[..length], Some(0), &Sampling::greedy(), go_on).unwrap();
        engine.logits().unwrap().iter().map(|logit| logit.to_bits()).collect()
    };
    let mut plain = load(stock(&reloading::options(&model, Manage::None)));
    let golden: Vec<Vec<u32>> = (64..74).map(|length| after(&mut plain, length)).collect();
    drop(plain);
    stand_in(ByteSize::gib(1));
    let copies = reloading::copies(reloading::options(&model, Manage::None), &[], SOME, ByteSize::mib(1));
    let mut engine = load(copies.clone());
    for (length, golden) in (64..).zip(&golden) {
        assert!(after(&mut engine, length) == *golden, "{arch}, {length}: {:?}", engine.hot_experts());
    }
    let [ggml, lanes] = engine.contested_batches();
    assert!(ggml >= 2 && lanes >= 2, "{arch}: {ggml} and {lanes}, {:?}", engine.hot_experts());
    let used = totals(&engine);
    assert!(used.prefill_hot + used.prefill_sent > 0, "{arch}: {used:?}");
    drop(engine);
    let devices = DeviceOptions { op_offload: false, ..copies.devices };
    let mut engine = load(Options { devices, ..copies });
    assert!(after(&mut engine, 64) == golden[0]);
    assert_eq!(engine.contested_batches(), [0, 0], "nothing is offered to ggml");
}
