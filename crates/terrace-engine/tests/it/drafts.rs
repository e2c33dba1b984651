//! Drafts change no text: a token that is checked beside others has the bits that it has alone.

use crate::budgets::minimum;
use crate::bundled;
use crate::made::{Model, models_of};
use crate::reloading::{self, dir};
use std::ops::ControlFlow;
use std::path::Path;
use terrace_engine::options::{
    ComputeOptions, ContextOptions, DraftOptions, DraftSource, KernelChoice, KernelOptions, MemoryOptions,
    Recorded,
};
use terrace_engine::{Engine, EngineError, Logits, NoDrafts, Options, Unfit};
use terrace_ggml::llama::Sampling;
use terrace_plan::{Budget, Manage};
use terrace_testkit::{Arch, Spec, WeightType};

/// Loads, or says why not.
fn try_load(options: Options) -> Result<Engine, EngineError> {
    terrace_testkit::needs_own_process();
    Engine::load(options, &mut |_| ControlFlow::Continue(()))
}

/// Bits of the logits of all tokens from `from` on, in passes of `width`.
fn passes(engine: &mut Engine, tokens: &[i32], from: usize, width: usize) -> Result<Vec<u32>, NoDrafts> {
    let mut bits = Vec::new();
    let mut sink = |rows: terrace_engine::LogitRows<'_>| {
        bits.extend(rows.rows.iter().map(|logit| logit.to_bits()));
        Ok::<(), EngineError>(())
    };
    match Logits::new(engine).of_passes(tokens, from, width, &mut sink) {
        Ok(()) => Ok(bits),
        Err(EngineError::Unfit(Unfit::Drafts(reason))) => Err(reason),
        Err(error) => panic!("{error}"),
    }
}

/// Compares passes of several widths with passes of one token. Returns the widths that differ; those
/// that cannot be taken apart are left out, but not all of them.
fn differing(options: Options, tokens: usize, from: usize, widths: &[usize]) -> Result<Vec<usize>, NoDrafts> {
    let context = ContextOptions { outputs: 16, ..options.context };
    let mut engine = reloading::load(Options { context, ..options });
    let count = engine.vocabulary();
    let text: Vec<i32> = (0..tokens).map(|at| (3 + (at * 37 + at * at) % (count - 3)) as i32).collect();
    let alone = passes(&mut engine, &text, from, 1).unwrap();
    assert_eq!(alone.len(), (tokens - from) * count);
    let (mut wrong, mut unclear) = (Vec::new(), Vec::new());
    for &width in widths {
        match passes(&mut engine, &text, from, width) {
            Ok(bits) if bits == alone => {}
            Ok(_) => wrong.push(width),
            Err(NoDrafts::Width { .. }) => unclear.push(width),
            Err(_) => return Err(NoDrafts::OtherGraph),
        }
    }
    assert!(unclear.len() < widths.len(), "none of {widths:?} can be taken apart");
    Ok(wrong)
}

mod every_architecture_has_the_bits_of_lone_tokens {
    terrace_testkit::each!(super::part: first = 0, second = 1, third = 2, fourth = 3);
}

mod every_architecture_has_the_bits_of_lone_tokens_with_fast_kernels {
    terrace_testkit::each!(super::fast_part: first = 0, second = 1, third = 2, fourth = 3);
}

/// Types with kernels of several columns, and others.
const MIXTURES: [&str; 4] = ["Q8_0", "Q4_K_M", "Q4_0", "F16"];

/// llama.cpp makes other graphs of these for one token than for several.
const OTHERWISE: [&str; 1] = ["minimax-m3"];

fn part(part: usize) {
    part_with(part, KernelChoice::Exact);
}

fn fast_part(part: usize) {
    part_with(part, KernelChoice::Fast);
}

fn part_with(part: usize, kernels: KernelChoice) {
    let dir = dir();
    let (mut wrong, mut compared, mut states) = (Vec::new(), 0, 0);
    for Model { number, name, mixture, path: model } in models_of(part, MIXTURES, dir.path()) {
        let drafted = |options: Options| {
            let drafts = DraftOptions { draft: Some(DraftSource::Ngram), ..DraftOptions::default() };
            try_load(Options { drafts, ..options })
        };
        match drafted(reloading::options(&model, Manage::None)) {
            Ok(engine) => drop(engine),
            Err(EngineError::Unfit(Unfit::Drafts(NoDrafts::States))) => {
                states += 1;
                continue;
            }
            Err(error) => panic!("{name}: {error}"),
        }
        let ways = [(Manage::All, true), (Manage::None, false)];
        for (manage, least) in terrace_testkit::thorough(vec![ways[number / 2 % 2]], ways.into()) {
            let of = reloading::options(&model, manage);
            let ram_budget =
                if least { Budget::Bytes(minimum(&model, manage)) } else { of.memory.ram_budget };
            let memory = MemoryOptions { ram_budget, ..of.memory };
            let options = Options { memory, kernels: KernelOptions { kernels }, ..of };
            let widths = terrace_testkit::thorough(&[2, 5][..], &[2, 3, 4, 5, 6, 7]);
            let what = match differing(options, 54, 40, widths) {
                Ok(widths) if widths.is_empty() => None,
                Ok(widths) => Some(format!("passes of {widths:?} tokens differ")),
                Err(_) if OTHERWISE.contains(&name.as_str()) => None,
                Err(reason) => Some(reason.to_string()),
            };
            wrong.extend(what.map(|what| format!("{name} in {mixture}, streaming {manage}: {what}")));
            compared += 1;
        }
    }
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 20 && states > 0, "{compared} compared, {states} with states");
}

/// Attention is divided over threads from 512 keys on, and the number of keys grows by 256.
#[test]
fn long_texts_have_the_bits_of_lone_tokens() {
    let ways: [(Manage, u32, &[usize]); 2] = [(Manage::Experts, 2, &[5]), (Manage::None, 2, &[2, 3, 6, 7])];
    for ((manage, threads, widths), kernels) in
        ways.into_iter().flat_map(|way| [(way, KernelChoice::Exact), (way, KernelChoice::Fast)])
    {
        let of = bundled::options(manage == Manage::Experts);
        let context = ContextOptions { ctx: Some(1024), ubatch: None, batch: 2048, ..of.context };
        let compute = ComputeOptions { threads: Some(threads), threads_batch: Some(1), ..of.compute };
        let options = Options { context, compute, kernels: KernelOptions { kernels }, ..of };
        let differing = differing(options, 524, 504, widths).unwrap();
        assert_eq!(differing, Vec::<usize>::new(), "{manage}, {kernels:?}");
    }
}

/// A dense model has no tiled kernels for experts, so that more drafts are checked at once.
#[test]
fn dense_models_have_the_bits_of_lone_tokens_in_wide_passes() {
    let dir = dir();
    for (ty, manage) in [(WeightType::Q4_K, Manage::All), (WeightType::Q8_0, Manage::None)] {
        let spec = Spec { expert_type: ty, ..Spec::new(Arch::Llama) };
        let model = terrace_testkit::write(&spec, dir.path().join("dense.gguf")).unwrap();
        let options = reloading::options(&model, manage);
        assert_eq!(differing(options, 90, 40, &[8, 13, 16]).unwrap(), Vec::<usize>::new(), "{ty:?}");
    }
}

fn generate(engine: &mut Engine, prompt: &[i32], n: usize, sampling: &Sampling) -> terrace_engine::Answer {
    let mut session = engine.session();
    engine.generate(&mut session, prompt, Some(n), sampling, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn with(options: &Options, source: DraftSource, most: u32) -> Options {
    Options {
        drafts: DraftOptions {
            draft: Some(source),
            draft_max: Some(most),
            draft_ungated: true,
            ..DraftOptions::default()
        },
        ..options.clone()
    }
}

/// The bundled model answers `n` tokens, greedily and by chance, with drafts from every source.
fn answers_are_plain(streamed: bool, n: usize) {
    let options = bundled::options(streamed);
    let context = ContextOptions { ctx: Some(1024), ..options.context };
    let options = Options { context, ..options };
    let mut plain = reloading::load(options.clone());
    let prompt = bundled::text(&plain, 300, 120);
    let chance = Sampling { temp: 0.8, seed: 7, ..Sampling::default() };
    let samplings = [Sampling::greedy(), chance];
    let expected: Vec<Vec<i32>> =
        samplings.iter().map(|sampling| generate(&mut plain, &prompt, n, sampling).tokens).collect();
    drop(plain);
    let own = DraftSource::Model(bundled::models().join("tiny-moe-Q4_K.gguf"));
    for most in 1..=6 {
        for (sampling, expected) in samplings.iter().zip(&expected) {
            let recorded = |right| DraftSource::Recorded(Recorded { answer: expected.clone(), right });
            for source in [recorded(0.7), recorded(1.0), DraftSource::Ngram, own.clone()] {
                let name = source.to_string();
                let all_right = source == recorded(1.0);
                let mut engine = reloading::load(with(&options, source, most));
                let answer = generate(&mut engine, &prompt, n, sampling);
                assert_eq!(&answer.tokens, expected, "{name}, up to {most} drafts");
                let timings = answer.timings;
                let counts = engine.draft_counts().unwrap();
                assert_eq!(
                    (timings.drafted, timings.accepted),
                    (counts.drafted as usize, counts.accepted as usize)
                );
                assert_eq!(timings.decode_passes + timings.accepted, expected.len() - 1, "{name}, {most}");
                if all_right {
                    assert_eq!(timings.accepted, timings.drafted);
                    assert!(timings.decode_passes <= expected.len() / (most as usize + 1) + 6, "{timings:?}");
                }
            }
        }
    }
}

/// What `auto` chooses, by the gate, gives the plain answer as well.
fn chosen_answers_are_plain(streamed: bool, n: usize) {
    let options = bundled::options(streamed);
    let context = ContextOptions { ctx: Some(1024), ..options.context };
    let options = Options { context, ..options };
    let mut plain = reloading::load(options.clone());
    let prompts = [0, 300, 5000, 40_000].map(|from| bundled::text(&plain, from, 120));
    let expected: Vec<_> =
        prompts.iter().map(|prompt| generate(&mut plain, prompt, n, &Sampling::greedy()).tokens).collect();
    drop(plain);
    for source in [DraftSource::Auto, DraftSource::Model(bundled::models().join("tiny-moe-Q4_K.gguf"))] {
        let drafts = DraftOptions { draft: Some(source.clone()), ..DraftOptions::default() };
        let mut engine = reloading::load(Options { drafts, ..options.clone() });
        for (prompt, expected) in prompts.iter().zip(&expected) {
            assert_eq!(
                &generate(&mut engine, prompt, n, &Sampling::greedy()).tokens,
                expected,
                "{source}, by the gate"
            );
        }
    }
}

#[test]
fn answers_with_drafts_by_the_gate_are_plain_ones() {
    for streamed in [true, false] {
        chosen_answers_are_plain(streamed, terrace_testkit::thorough(60, 800));
    }
}

/// Without experts up to 15 drafts are checked at once.
#[test]
fn answers_of_dense_models_with_many_drafts_are_plain_ones() {
    let dir = dir();
    let n = terrace_testkit::thorough(100, 1200);
    for (ty, manage) in [(WeightType::Q4_K, Manage::All), (WeightType::Q8_0, Manage::None)] {
        let spec = Spec { expert_type: ty, ..Spec::new(Arch::Llama) };
        let model = terrace_testkit::write(&spec, dir.path().join("dense.gguf")).unwrap();
        let of = reloading::options(&model, manage);
        let context = ContextOptions { ctx: Some(1280), ..of.context };
        let options = Options { context, ..of };
        let mut plain = reloading::load(options.clone());
        let count = plain.vocabulary();
        let prompt: Vec<i32> = (0..40).map(|at| (3 + (at * 37 + at * at) % (count - 3)) as i32).collect();
        let chance = Sampling { temp: 0.8, seed: 7, ..Sampling::default() };
        for sampling in [Sampling::greedy(), chance] {
            let expected = generate(&mut plain, &prompt, n, &sampling).tokens;
            assert_eq!(expected.len(), n);
            let recorded = DraftSource::Recorded(Recorded { answer: expected.clone(), right: 0.9 });
            for most in terrace_testkit::thorough(&[15][..], &[7, 8, 11, 15]) {
                for source in [recorded.clone(), DraftSource::Ngram, DraftSource::Model(model.clone())] {
                    let name = format!("{source}, {ty:?}, up to {most} drafts");
                    let mut engine = reloading::load(with(&options, source, *most));
                    let answer = generate(&mut engine, &prompt, n, &sampling);
                    assert_eq!(answer.tokens, expected, "{name}");
                    assert_eq!(answer.timings.decode_passes + answer.timings.accepted, n - 1, "{name}");
                }
            }
        }
    }
}

#[test]
fn streamed_answers_with_drafts_are_plain_ones() {
    answers_are_plain(true, terrace_testkit::thorough(60, 600));
}

#[test]
fn resident_answers_with_drafts_are_plain_ones() {
    answers_are_plain(false, terrace_testkit::thorough(60, 600));
}

/// Drafts beyond what may be generated, or what the context holds, are not checked.
#[test]
fn answers_end_where_plain_ones_end() {
    let options = bundled::options(true);
    let context = ContextOptions { ctx: Some(256), ..options.context };
    let options = Options { context, ..options };
    let mut plain = reloading::load(options.clone());
    let prompt = bundled::text(&plain, 0, 230);
    let full = generate(&mut plain, &prompt, 100, &Sampling::greedy());
    assert_eq!(full.stop, terrace_engine::StopReason::ContextFull);
    drop(plain);
    let recorded = DraftSource::Recorded(Recorded { answer: full.tokens.clone(), right: 1.0 });
    let mut engine = reloading::load(with(&options, recorded, 6));
    for n in [1, 2, 3, 9, 100] {
        let answer = generate(&mut engine, &prompt, n, &Sampling::greedy());
        let expected = &full.tokens[..n.min(full.tokens.len())];
        assert_eq!(answer.tokens, expected, "{n} tokens");
    }
}

#[test]
fn drafts_that_cannot_be_checked_are_refused() {
    let dir = dir();
    let path = |name: &str| dir.path().join(name);
    let other = terrace_testkit::write(&Spec::new(Arch::Llama), path("other.gguf")).unwrap();
    let options = bundled::options(false);
    let refusal = |options: Options| match try_load(options) {
        Err(EngineError::Unfit(Unfit::Drafts(reason))) => reason,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("drafts are not refused"),
    };
    let of = |path: &Path| with(&options, DraftSource::Model(path.into()), 4);
    let reason = refusal(of(&other));
    assert!(matches!(reason, NoDrafts::VocabularySize { .. } | NoDrafts::Vocabulary { .. }), "{reason}");
    assert!(try_load(of(&path("missing.gguf"))).is_err());
    let delta = terrace_testkit::write(&Spec::new(Arch::Qwen3Next), path("delta.gguf")).unwrap();
    let states = Options { model: delta, ..with(&options, DraftSource::Ngram, 4) };
    assert!(matches!(refusal(states.clone()), NoDrafts::States));
    let auto = DraftOptions { draft: Some(DraftSource::Auto), ..DraftOptions::default() };
    assert!(try_load(Options { drafts: auto, ..states }).unwrap().draft_source().is_none());
}

/// Plans know the types of which products are computed token by token.
#[cfg(target_arch = "x86_64")]
#[test]
fn plans_know_what_is_read_for_each_token() {
    let mut known = 0;
    for id in 0.. {
        let Some(ty) = terrace_ggml::DataType::from_id(id) else { break };
        let Some(described) = terrace_ggml::gguf::tensor_type(id).filter(|_| ty.is_multiplied()) else {
            continue;
        };
        known += 1;
        assert_eq!(
            terrace_plan::drafts::is_read_anew(&described.name),
            !ty.has_one_product(),
            "{}",
            described.name
        );
    }
    assert!(known > 20, "{known} types");
}
