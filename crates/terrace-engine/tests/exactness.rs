//! Every architecture of the test kit: tokens and logits through Terrace are stock llama.cpp's, bit for bit.
//!
//! Each architecture and each type runs in a process of its own (this test binary again), because the stock reference
//! has to be computed before the Terrace device is registered and takes the graphs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use terrace_engine::options::{ComputeOptions, ContextOptions, IoOptions, PlacementOptions, TestingOptions};
use terrace_engine::{Engine, Mode, Options};
use terrace_ggml::llama::Sampling;
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};
use terrace_store::{DirectChoice, IoChoice, StoreStats};
use terrace_testkit::{Arch, Spec, WeightType};

const GENERATE: usize = 12;

/// What a run leaves: greedy tokens, and the bits of logits.
#[derive(Debug, PartialEq)]
struct Trace {
    tokens: Vec<i32>,
    after_prompt: Vec<u32>,
    at_end: Vec<u32>,
}

fn prompt(engine: &Engine) -> Vec<i32> {
    let text =
        "The terraces of the hill hold what the valley needs, and the water goes down from one to the next; ";
    let mut tokens = engine.tokenize(&text.repeat(3), true, false).unwrap();
    tokens.truncate(140);
    assert!(tokens.len() >= 100, "{} tokens", tokens.len());
    tokens
}

fn run(options: Options) -> (Trace, Option<StoreStats>) {
    let mut engine = Engine::load(options, &mut |_| ControlFlow::Continue(())).unwrap();
    let tokens = prompt(&engine);
    let bits = |engine: &mut Engine| -> Vec<u32> {
        let logits = engine.logits().unwrap();
        assert!(logits.iter().all(|l| l.is_finite()));
        logits.iter().map(|l| l.to_bits()).collect()
    };
    let keep_going = &mut |_: &[u8]| ControlFlow::Continue(());
    // The prompt alone first: its logits are a batch's, the later ones a single token's.
    let mut session = engine.session();
    engine.generate(&mut session, &tokens, Some(0), &Sampling::greedy(), keep_going).unwrap();
    let after_prompt = bits(&mut engine);
    let generation =
        engine.generate(&mut session, &tokens[..1], Some(GENERATE), &Sampling::greedy(), keep_going).unwrap();
    let at_end = bits(&mut engine);
    (Trace { tokens: generation.tokens, after_prompt, at_end }, engine.store_stats())
}

fn options(model: &Path) -> Options {
    Options {
        model: model.into(),
        context: ContextOptions { tokens: Some(256), ..ContextOptions::default() },
        compute: ComputeOptions { threads: Some(2), ..ComputeOptions::default() },
        ..Options::default()
    }
}

/// Room for two experts of each MoE layer beside what is resident, or the least that works if that is more.
fn two_bundles(model: &Path, manage: Manage) -> ByteSize {
    let file = terrace_ggml::gguf::read(model).unwrap();
    let request = terrace_plan::Wishes {
        mapping: false,
        manage,
        ram_budget: Budget::Bytes(ByteSize::gib(1 << 20)),
        ..Default::default()
    };
    let machine =
        terrace_plan::MachineProfile::unmeasured("m", 2, ByteSize::gib(1 << 20), ByteSize::gib(1 << 20));
    let plan = terrace_plan::plan(&file, &machine, &request).unwrap();
    let bundles: ByteSize =
        terrace_plan::model::expert_groups(&file).iter().map(|g| ByteSize(2 * g.bundle.bytes())).sum();
    plan.minimum.max(plan.resident + bundles)
}

fn check(spec: &Spec, dir: &Path) {
    let name = format!("{:?} with experts in {}", spec.arch, spec.expert_type.name());
    let model: PathBuf = terrace_testkit::write(spec, dir.join("model.gguf")).unwrap();
    let (stock, _) = run(Options { mode: Mode::Stock { repack: false }, ..options(&model) });
    let file = terrace_ggml::gguf::read(&model).unwrap();
    let moe = !terrace_plan::model::expert_groups(&file).is_empty();
    let manages: &[Manage] =
        if moe { &[Manage::Experts, Manage::Ffn, Manage::All] } else { &[Manage::Ffn, Manage::All] };
    let ways = [
        (IoChoice::Uring, DirectChoice::On),
        (IoChoice::Uring, DirectChoice::Off),
        (IoChoice::Pread, DirectChoice::On),
        (IoChoice::Pread, DirectChoice::Off),
    ];
    for &manage in manages {
        // All four ways for the first and the last selection, one for the others.
        let n = if manage == Manage::Ffn && moe { 1 } else { 4 };
        for (io, direct) in ways.into_iter().take(n) {
            let ram_budget = Budget::Bytes(two_bundles(&model, manage));
            let (got, stats) = run(Options {
                placement: PlacementOptions { stream: manage, ram_budget, ..options(&model).placement },
                io: IoOptions { engine: io, direct, ..options(&model).io },
                ..options(&model)
            });
            let stats = stats.unwrap();
            assert!(
                got == stock,
                "{name}: --manage {manage} --io {io} --direct {direct}: {}",
                difference(&got, &stock)
            );
            assert!(stats.misses > 0, "{name}, {manage}: nothing was streamed: {stats:?}");
        }
    }
    for manage in [Manage::None, Manage::Mapped] {
        let (got, stats) = run(Options {
            placement: PlacementOptions { stream: manage, ..options(&model).placement },
            ..options(&model)
        });
        assert!(got == stock, "{name}, --manage {manage}: {}", difference(&got, &stock));
        assert_eq!(stats.unwrap().misses, 0);
    }
}

fn difference(got: &Trace, stock: &Trace) -> String {
    let count = |a: &[u32], b: &[u32]| a.iter().zip(b).filter(|(a, b)| a != b).count();
    format!(
        "{} logits differ after the prompt, {} at the end; tokens {:?}, stock {:?}",
        count(&got.after_prompt, &stock.after_prompt),
        count(&got.at_end, &stock.at_end),
        got.tokens,
        stock.tokens
    )
}

/// Runs the ignored test `name` of this binary in a process of its own.
fn in_own_process(name: &str, subject: &str) {
    // One at a time: ggml's threads spin, and two pools on the same cores slow each other down by orders of magnitude.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--ignored"])
        .env("EXACTNESS_SUBJECT", subject)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{subject}: {text}");
}

fn subject() -> String {
    std::env::var("EXACTNESS_SUBJECT").unwrap()
}

fn dir() -> tempfile::TempDir {
    // On the disk of the target directory: /tmp may be memory, which has no direct I/O.
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn every_architecture_is_exact() {
    for arch in Arch::ALL {
        in_own_process("one_architecture", arch.name());
    }
}

#[test]
#[ignore = "run by every_architecture_is_exact, one process each"]
fn one_architecture() {
    let arch = *Arch::ALL.iter().find(|a| a.name() == subject()).unwrap();
    check(&Spec::new(arch), dir().path());
}

/// Other types than the architectures' own, `down` in another than `gate` and `up`, as quantisers mix them.
#[test]
fn every_type_is_exact() {
    for ty in ["q4_0", "q8_0", "q5_K", "q6_K", "q2_K", "iq4_xs", "mxfp4", "f16", "f32", "bf16"] {
        in_own_process("one_type", ty);
    }
}

#[test]
#[ignore = "run by every_type_is_exact, one process each"]
fn one_type() {
    let ty = WeightType::from_name(&subject()).unwrap();
    let spec =
        Spec { expert_type: ty, expert_down_type: Some(WeightType::Q6_K), ..Spec::new(Arch::Qwen3Moe) };
    check(&spec, dir().path());
}

/// A read that fails, wherever it happens, fails the call and nothing else: no thread is left waiting for another, and
/// the same engine generates the right tokens afterwards.
#[test]
fn every_failed_read_is_an_error_and_no_more() {
    in_own_process("failed_reads", "qwen3moe");
}

#[test]
#[ignore = "run by every_failed_read_is_an_error_and_no_more, in a process of its own"]
fn failed_reads() {
    let dir = dir();
    let model = terrace_testkit::write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf")).unwrap();
    let ram_budget = Budget::Bytes(two_bundles(&model, Manage::Experts));
    let base = Options {
        placement: PlacementOptions { stream: Manage::Experts, ram_budget, ..options(&model).placement },
        io: IoOptions { direct: DirectChoice::On, ..options(&model).io },
        ..options(&model)
    };
    let mut expected = None;
    let mut failures = 0;
    for request in 1..160 {
        let options = Options {
            testing: TestingOptions { faults: Some(format!("eio@{request}")), ..base.clone().testing },
            ..base.clone()
        };
        // Resident weights are read through the same engine: an early fault fails the load.
        let Ok(mut engine) = Engine::load(options, &mut |_| ControlFlow::Continue(())) else { continue };
        let tokens = prompt(&engine);
        let mut generate = |n| {
            let mut session = engine.session();
            engine.generate(&mut session, &tokens, Some(n), &Sampling::greedy(), &mut |_| {
                ControlFlow::Continue(())
            })
        };
        if let Err(error) = generate(4) {
            assert!(error.to_string().contains("Input/output error"), "{error}");
            failures += 1;
        }
        // The fault is over.
        let again =
            generate(4).map_err(|e| format!("after a fault at request {request}: {e}")).unwrap().tokens;
        assert_eq!(
            *expected.get_or_insert_with(|| again.clone()),
            again,
            "after a fault at request {request}"
        );
    }
    assert!(failures > 100, "{failures} faults met a read");
}
