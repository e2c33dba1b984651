//! For every architecture of the test kit, tokens and logits equal stock llama.cpp's, bit for bit.
//!
//! Each test needs its own process: the stock reference has to be computed before the Terrace
//! device is registered and takes the graphs.

use crate::budgets::two_bundles;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_engine::options::{ComputeOptions, ContextOptions, IoOptions, MemoryOptions, TestingOptions};
use terrace_engine::{Engine, Mode, Options};
use terrace_ggml::llama::Sampling;
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};
use terrace_store::{DirectChoice, IoChoice, StoreStats, check_io_uring};
use terrace_testkit::{Arch, Spec, WeightType};

const GENERATE: usize = 12;

/// Results of a run: greedy tokens, and the bits of logits.
#[derive(Debug, PartialEq)]
pub struct Trace {
    pub tokens: Vec<i32>,
    pub after_prompt: Vec<u32>,
    pub at_end: Vec<u32>,
}

fn prompt(engine: &Engine) -> Vec<i32> {
    let text =
        "The terraces of the hill hold what the valley needs, and the water goes down from one to the next; ";
    let mut tokens = engine.tokenize(&text.repeat(3), true, false).unwrap();
    tokens.truncate(140);
    assert!(tokens.len() >= 100, "{} tokens", tokens.len());
    tokens
}

pub fn run(options: Options) -> (Trace, Option<StoreStats>) {
    let mut engine = Engine::load(options, &mut |_| ControlFlow::Continue(())).unwrap();
    let tokens = prompt(&engine);
    let bits = |engine: &mut Engine| -> Vec<u32> {
        let logits = engine.logits().unwrap();
        assert!(logits.iter().all(|l| l.is_finite()));
        logits.iter().map(|l| l.to_bits()).collect()
    };
    let keep_going = &mut |_: &[u8]| ControlFlow::Continue(());
    // First the prompt alone: its logits come from a batch, the later ones from a single token.
    let mut session = engine.session();
    engine.generate(&mut session, &tokens, Some(0), &Sampling::greedy(), keep_going).unwrap();
    let after_prompt = bits(&mut engine);
    let generation =
        engine.generate(&mut session, &tokens[..1], Some(GENERATE), &Sampling::greedy(), keep_going).unwrap();
    let at_end = bits(&mut engine);
    (Trace { tokens: generation.tokens, after_prompt, at_end }, engine.store_stats())
}

pub fn options(model: &Path) -> Options {
    Options {
        model: model.into(),
        memory: MemoryOptions { available_memory: Some(ByteSize::gib(8)), ..MemoryOptions::default() },
        context: ContextOptions { ctx: Some(256), ..ContextOptions::default() },
        compute: ComputeOptions { threads: Some(2), ..ComputeOptions::default() },
        ..Options::default()
    }
}

/// One way to run a model. `io` and `direct` have no effect on mapped weights, which no engine
/// reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    manage: Manage,
    io: IoChoice,
    direct: DirectChoice,
    threads: u32,
}

pub const MANAGES: [Manage; 5] = [Manage::Experts, Manage::Ffn, Manage::All, Manage::None, Manage::Mapped];
const WAYS: [(IoChoice, DirectChoice); 4] = [
    (IoChoice::Uring, DirectChoice::On),
    (IoChoice::Uring, DirectChoice::Off),
    (IoChoice::Pread, DirectChoice::On),
    (IoChoice::Pread, DirectChoice::Off),
];

/// Returns the engine of a case, or `pread` where the system has no rings. Emulators of Linux have none; elsewhere, the
/// store's tests ask for them.
fn existing(io: IoChoice) -> IoChoice {
    if check_io_uring().is_ok() { io } else { IoChoice::Pread }
}

/// The cases of the model with this number: each selection once, such that over all models each
/// value of a factor is combined with each value of the others.
fn covering(number: usize) -> Vec<Case> {
    let case = |(i, &manage): (usize, &Manage)| {
        let (io, direct) = WAYS[(i + number) % WAYS.len()];
        Case { manage, io, direct, threads: 1 + ((i + number / WAYS.len()) % 2) as u32 }
    };
    MANAGES.iter().enumerate().map(case).collect()
}

/// The covering cases, or all of them.
fn cases(number: usize) -> Vec<Case> {
    terrace_testkit::thorough(covering(number), product())
}

/// Every selection with every way to read and both thread counts.
fn product() -> Vec<Case> {
    let ways = |manage| WAYS.map(|(io, direct)| [1, 2].map(|threads| Case { manage, io, direct, threads }));
    MANAGES.into_iter().flat_map(ways).flatten().collect()
}

#[test]
fn each_pair_of_values_is_covered() {
    let all: Vec<(usize, Case)> =
        (0..Arch::ALL.len()).flat_map(|n| covering(n).into_iter().map(move |case| (n, case))).collect();
    let has = |what: &str, test: &dyn Fn(usize, &Case) -> bool| {
        assert!(all.iter().any(|(n, case)| test(*n, case)), "{what} is not covered");
    };
    for a in product().into_iter().filter(|case| case.manage != Manage::Mapped) {
        has(&format!("{a:?}: selection and way"), &|_, b| {
            (a.manage, a.io, a.direct) == (b.manage, b.io, b.direct)
        });
        has(&format!("{a:?}: selection and threads"), &|_, b| (a.manage, a.threads) == (b.manage, b.threads));
        has(&format!("{a:?}: way and threads"), &|_, b| {
            b.manage != Manage::Mapped && (a.io, a.direct, a.threads) == (b.io, b.direct, b.threads)
        });
        for model in 0..Arch::ALL.len() {
            has(&format!("{model}, {a:?}: way"), &|n, b| {
                n == model && b.manage != Manage::Mapped && (a.io, a.direct) == (b.io, b.direct)
            });
            has(&format!("{model}, {a:?}: threads"), &|n, b| n == model && a.threads == b.threads);
            has(&format!("{model}, {a:?}: selection"), &|n, b| n == model && a.manage == b.manage);
        }
    }
}

fn check(spec: &Spec, cases: &[Case]) {
    terrace_testkit::needs_own_process();
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let name = format!("{:?} with experts in {}", spec.arch, spec.expert_type.name());
    let model: PathBuf = terrace_testkit::write(spec, dir.path().join("model.gguf")).unwrap();
    // Must come first: once the Terrace device is registered, it takes the graphs.
    let stock = [1, 2].map(|threads| {
        let compute = ComputeOptions { threads: Some(threads), ..options(&model).compute };
        run(Options { mode: Mode::Stock { repack: false }, compute, ..options(&model) }).0
    });
    let file = terrace_ggml::gguf::read(&model).unwrap();
    let moe = !terrace_plan::model::expert_groups(&file).is_empty();
    for mut case in cases.iter().copied() {
        if !moe && case.manage == Manage::Experts {
            case.manage = Manage::Ffn;
        }
        let streams = !matches!(case.manage, Manage::None | Manage::Mapped);
        let ram_budget = if streams { Budget::Bytes(two_bundles(&model, case.manage)) } else { Budget::Auto };
        let base = options(&model);
        let io = match case.manage {
            Manage::Mapped => base.io,
            _ => IoOptions { io: existing(case.io), direct: case.direct, ..base.io },
        };
        let (got, stats) = run(Options {
            memory: MemoryOptions { stream: case.manage, ram_budget, ..base.memory },
            io,
            compute: ComputeOptions { threads: Some(case.threads), ..base.compute },
            ..options(&model)
        });
        let stock = &stock[case.threads as usize - 1];
        assert!(got == *stock, "{name}: {case:?}: {}", difference(&got, stock));
        assert_eq!(stats.unwrap().misses > 0, streams, "{name}: {case:?}");
    }
}

pub fn difference(got: &Trace, stock: &Trace) -> String {
    let count = |a: &[u32], b: &[u32]| a.iter().zip(b).filter(|(a, b)| a != b).count();
    format!(
        "{} logits differ after the prompt, {} at the end; tokens {:?}, stock {:?}",
        count(&got.after_prompt, &stock.after_prompt),
        count(&got.at_end, &stock.at_end),
        got.tokens,
        stock.tokens
    )
}

mod every_architecture_is_exact {
    terrace_testkit::each_architecture!(super::architecture);
}

fn architecture(arch: Arch) {
    let number = Arch::ALL.iter().position(|other| *other == arch).unwrap();
    check(&Spec::new(arch), &cases(number));
}

/// Types other than the architectures' own, with `down` in a different type than `gate` and `up`,
/// as quantisers mix them.
mod every_type_is_exact {
    use terrace_testkit::WeightType;
    terrace_testkit::each!(super::weight_type:
        q4_0 = WeightType::Q4_0,
        q8_0 = WeightType::Q8_0,
        q5_k = WeightType::Q5_K,
        q6_k = WeightType::Q6_K,
        q2_k = WeightType::Q2_K,
        iq4_xs = WeightType::IQ4_XS,
        mxfp4 = WeightType::MXFP4,
        f16 = WeightType::F16,
        f32 = WeightType::F32,
        bf16 = WeightType::BF16,
    );
}

pub fn mixed(ty: WeightType) -> Spec {
    Spec { expert_type: ty, expert_down_type: Some(WeightType::Q6_K), ..Spec::new(Arch::Qwen3Moe) }
}

fn weight_type(ty: WeightType) {
    check(&mixed(ty), &cases(ty.id() as usize));
}

/// A failed read, wherever it happens, fails only the call: no thread is left waiting for another,
/// and the same engine generates the right tokens afterwards.
#[test]
fn every_failed_read_is_an_error_and_no_more() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let model = terrace_testkit::write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf")).unwrap();
    let ram_budget = Budget::Bytes(two_bundles(&model, Manage::Experts));
    let base = Options {
        memory: MemoryOptions { stream: Manage::Experts, ram_budget, ..options(&model).memory },
        io: IoOptions { direct: DirectChoice::On, ..options(&model).io },
        ..options(&model)
    };
    // "Input/output error" on Linux.
    let words = std::io::Error::from_raw_os_error(terrace_platform::errors::INPUT_OUTPUT).to_string();
    let mut expected = None;
    let mut failures = 0;
    for request in 1..160 {
        let options = Options {
            testing: TestingOptions { inject_fault: Some(format!("eio@{request}")), ..base.clone().testing },
            ..base.clone()
        };
        // Resident weights are read through the same I/O engine, so an early fault fails the load.
        let Ok(mut engine) = Engine::load(options, &mut |_| ControlFlow::Continue(())) else { continue };
        let tokens = prompt(&engine);
        let mut generate = |n| {
            let mut session = engine.session();
            engine.generate(&mut session, &tokens, Some(n), &Sampling::greedy(), &mut |_| {
                ControlFlow::Continue(())
            })
        };
        if let Err(error) = generate(4) {
            assert!(error.to_string().contains(&words), "{error}");
            failures += 1;
        }
        // The fault does not recur.
        let again =
            generate(4).map_err(|e| format!("after a fault at request {request}: {e}")).unwrap().tokens;
        assert_eq!(
            *expected.get_or_insert_with(|| again.clone()),
            again,
            "after a fault at request {request}"
        );
    }
    assert!(failures > 100, "only {failures} faults hit a read");
}
