//! Prompts whose experts have copies on a device: it computes some of the pairs while the CPU
//! computes the others, in chunks, with the same bits as the CPU alone.

use crate::budgets::two_bundles;
use crate::reloading;
use crate::reloading::{dir, from_file, load, original, servers, with, write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use terrace_engine::options::{
    ContextOptions, DeviceOptions, HotLanes, HotOptions, MemoryOptions, TestingOptions,
};
use terrace_engine::{Engine, Options, StopReason};
use terrace_ggml::llama::Sampling;
use terrace_lanes::{HotTotals, Sending};
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};
use terrace_testkit::rpc::RpcServer;
use terrace_testkit::{Arch, Spec, WeightType};

const TEXT: &str = "The water goes down from one terrace to the next, and the rice grows in all of them; \
                    whoever walks along their borders sees the sky in each, and the hills upside down, \
                    until the wind comes and takes both away.";

/// Copies within `bytes` of the servers' devices.
fn with_copies(model: &Path, servers: &[RpcServer], manage: Manage, bytes: ByteSize) -> Options {
    reloading::copies(reloading::options(model, manage), servers, bytes, ByteSize::mib(16))
}

fn plain(model: &Path) -> Engine {
    load(reloading::options(model, Manage::Experts))
}

/// Bits of the logits after the text; `None` if it was interrupted.
fn prefill(engine: &mut Engine) -> Option<Vec<u32>> {
    let mut session = engine.session();
    let tokens = engine.tokenize(TEXT, true, false).unwrap();
    assert!(tokens.len() > 130, "{}", tokens.len());
    let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
    let answer = engine.generate(&mut session, &tokens, Some(0), &Sampling::greedy(), go_on).unwrap();
    let done = answer.stop != StopReason::Cancelled;
    done.then(|| engine.logits().unwrap().iter().map(|logit| logit.to_bits()).collect())
}

/// Generates a few tokens, so that experts get copies.
fn decode(engine: &mut Engine) {
    let mut session = engine.session();
    let tokens = engine.tokenize("The rice grows", true, false).unwrap();
    let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
    engine.generate(&mut session, &tokens, Some(16), &Sampling::greedy(), go_on).unwrap();
}

fn totals(engine: &Engine) -> HotTotals {
    engine.hot_totals().unwrap()
}

/// Room for all experts, and for chunks of fewer pairs than an expert has.
const ALL: ByteSize = ByteSize::mib(8);
const MEMORY: ByteSize = ByteSize::mib(256);

mod chunks_are_exact {
    use terrace_testkit::Arch;
    terrace_testkit::each!(super::in_chunks: qwen3moe = Arch::Qwen3Moe, gpt_oss = Arch::GptOss, gemma4 = Arch::Gemma4);
}

fn in_chunks(arch: Arch) {
    let (dir, servers) = (dir(), servers(1, MEMORY));
    let model = write(&Spec::new(arch), dir.path().join("model.gguf"));
    let golden = prefill(&mut plain(&model)).unwrap();
    let (pays, always) = (HotLanes::Auto, HotLanes::Always);
    for (manage, lanes) in [(Manage::Experts, always), (Manage::None, always), (Manage::Experts, pays)] {
        let wanted = with_copies(&model, &servers, manage, ALL);
        let mut engine = load(Options { hot: HotOptions { hot_lanes: lanes, ..wanted.hot }, ..wanted });
        decode(&mut engine);
        let before = totals(&engine);
        for round in 0..3 {
            assert!(prefill(&mut engine).unwrap() == golden, "{arch}, {manage}, {lanes}, round {round}");
        }
        let after = totals(&engine);
        let (hot, cpu) = (after.prefill_hot - before.prefill_hot, after.bypassed - before.bypassed);
        // Without `always` at least the probes are computed there.
        assert!(hot > 0 && (lanes == pays || hot > cpu), "{arch}, {manage}: {hot} and {cpu}");
    }
}

#[test]
fn a_prompt_gets_copies_between_its_graphs() {
    let (dir, servers) = (dir(), servers(1, MEMORY));
    let model = write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    for (ubatch, manage) in [(32, Manage::Experts), (32, Manage::None), (7, Manage::Experts)] {
        let graphs = |options: Options| {
            let context = ContextOptions { ubatch: Some(ubatch), ..options.context };
            load(Options { context, ..options })
        };
        let golden = prefill(&mut graphs(reloading::options(&model, Manage::Experts))).unwrap();
        let mut engine = graphs(with_copies(&model, &servers, manage, ALL));
        assert!(prefill(&mut engine).unwrap() == golden, "{ubatch}, {manage}");
        let used = totals(&engine);
        let [hot, cpu] = [used.prefill_hot, used.bypassed];
        assert_eq!((used.hot, used.cold), (0, 0), "nothing was decoded: {used:?}");
        assert!(used.filled > 0 && hot > cpu, "{ubatch}, {manage}: {used:?}");
    }
}

mod a_server_that_ends_during_a_prompt {
    terrace_testkit::each!(super::ends: first = 1, second = 2, third = 3);
}

fn ends(seed: u64) {
    let dir = dir();
    let model = write(&many(Arch::GptOss), dir.path().join("model.gguf"));
    let golden = prefill(&mut plain(&model)).unwrap();
    let mut servers = servers(1, MEMORY);
    let manage = if seed == 1 { Manage::None } else { Manage::Experts };
    let room = if seed == 3 { SOME } else { ALL };
    let mut engine = load(sending(with_copies(&model, &servers, manage, room)));
    decode(&mut engine);
    let after = Duration::from_micros(seed * (u64::from(std::process::id()) * 7919) % 150_000);
    let end = std::thread::spawn(move || {
        std::thread::sleep(after);
        servers.clear();
    });
    while engine.hot_experts().unwrap().layers[0].problem.is_none() {
        assert!(prefill(&mut engine).unwrap() == golden);
    }
    end.join().unwrap();
    let used = totals(&engine);
    assert!(prefill(&mut engine).unwrap() == golden);
    assert_eq!(totals(&engine).prefill_hot, used.prefill_hot, "it is never used again");
}

#[test]
fn a_prompt_that_is_stopped() {
    let (dir, servers) = (dir(), servers(1, MEMORY));
    let model = write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    let golden = prefill(&mut plain(&model)).unwrap();
    let mut engine = load(with_copies(&model, &servers, Manage::Experts, ALL));
    decode(&mut engine);
    for micros in [0, 500, 2_000, 8_000, 20_000] {
        let flag = engine.interrupt_flag();
        let stop = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(micros));
            flag.store(true, Ordering::Relaxed);
        });
        // It is stopped, unless it was faster.
        if let Some(logits) = prefill(&mut engine) {
            assert!(logits == golden);
        }
        stop.join().unwrap();
        engine.interrupt_flag().store(false, Ordering::Relaxed);
        assert!(prefill(&mut engine).unwrap() == golden, "after {micros} µs");
    }
    assert!(totals(&engine).prefill_hot > 0);
}

/// Copies are of what is loaded now.
#[test]
fn a_reload_between_prompts() {
    let (dir, servers) = (dir(), servers(1, MEMORY));
    let spec = Spec::new(Arch::Qwen3Moe);
    let base = write(&spec, dir.path().join("base.gguf"));
    let tensor = "blk.1.ffn_up_exps.weight";
    let donor = write(&with(&spec, tensor, WeightType::Q8_0), dir.path().join("donor.gguf"));
    let (before, after) = (prefill(&mut plain(&base)).unwrap(), prefill(&mut plain(&donor)).unwrap());
    assert!(before != after);
    let mut engine = load(with_copies(&base, &servers, Manage::Experts, ALL));
    decode(&mut engine);
    for _ in 0..2 {
        assert!(prefill(&mut engine).unwrap() == before);
        engine.swap(&[from_file(tensor, &donor)]).unwrap();
        let used = totals(&engine).prefill_hot;
        assert!(prefill(&mut engine).unwrap() == after);
        assert!(totals(&engine).prefill_hot > used);
        engine.swap(&[original(tensor)]).unwrap();
    }
    assert!(prefill(&mut engine).unwrap() == before);
}

/// Experts without a copy go through transit slots.
mod experts_are_copied_for_a_prompt {
    terrace_testkit::each_moe_architecture!(super::sent);
}

/// Room for a part of the experts of [`many`], and for transit slots.
const SOME: ByteSize = ByteSize::mib(3);

/// A model with twice the usual experts, of half the size.
fn many(arch: Arch) -> Spec {
    Spec { experts: 16, expert_ff: 256, ..Spec::new(arch) }
}

/// No copies, so that all of a prompt's experts are sent; then copies, and the others are sent.
fn sent(arch: Arch) {
    let (dir, servers) = (dir(), servers(1, MEMORY));
    let model = write(&many(arch), dir.path().join("model.gguf"));
    let golden = prefill(&mut plain(&model)).unwrap();
    for manage in [Manage::Experts, Manage::None] {
        let mut engine = load(sending(with_copies(&model, &servers, manage, SOME)));
        assert!(prefill(&mut engine).unwrap() == golden, "{arch}, {manage}: {:?}", totals(&engine));
        let first = totals(&engine);
        assert!(first.prefill_sent > 0 && first.prefill_hot == 0 && first.bypassed == 0, "{first:?}");
        assert!(first.sent_bytes > ByteSize::ZERO, "{first:?}");
        decode(&mut engine);
        for round in 0..2 {
            assert!(prefill(&mut engine).unwrap() == golden, "{arch}, {manage}, {round}");
        }
        let later = totals(&engine);
        assert!(later.prefill_sent > first.prefill_sent && later.prefill_hot > 0, "{later:?}");
    }
}

fn sending(options: Options) -> Options {
    Options { testing: TestingOptions { sending: Sending::Always, ..options.testing }, ..options }
}

/// As many as pay, as measured; and none if devices compute no large batches.
#[test]
fn sending_is_measured() {
    let (dir, servers) = (dir(), servers(1, MEMORY));
    let model = write(&many(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    let golden = prefill(&mut plain(&model)).unwrap();
    for op_offload in [true, false] {
        let wanted = with_copies(&model, &servers, Manage::Experts, SOME);
        let mut engine = load(Options {
            devices: DeviceOptions { op_offload, ..wanted.devices },
            hot: HotOptions { hot_lanes: HotLanes::Auto, ..wanted.hot },
            ..wanted
        });
        for round in 0..4 {
            assert!(prefill(&mut engine).unwrap() == golden, "{op_offload}, {round}");
        }
        let totals = totals(&engine);
        assert_eq!(totals.prefill_sent > 0, op_offload, "{totals:?}");
        assert!(totals.bypassed > 0, "{totals:?}");
    }
}

/// The slots in RAM hold few experts, so those that were copied have to make room.
#[test]
fn leases_end_when_experts_are_copied() {
    let (dir, servers) = (dir(), servers(1, MEMORY));
    let model = write(&many(Arch::Qwen3Moe), dir.path().join("model.gguf"));
    let golden = prefill(&mut plain(&model)).unwrap();
    let wanted = sending(with_copies(&model, &servers, Manage::Experts, SOME));
    let budget = two_bundles(&model, Manage::Experts);
    let mut engine = load(Options {
        memory: MemoryOptions { ram_budget: Budget::Bytes(budget), ..wanted.memory },
        ..wanted
    });
    for round in 0..3 {
        assert!(prefill(&mut engine).unwrap() == golden, "{round}: {:?}", totals(&engine));
        decode(&mut engine);
    }
    assert!(totals(&engine).prefill_sent > 0, "{:?}", engine.hot_experts());
}
