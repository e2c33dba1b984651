//! Drafts of a model's own MTP layers change no text, and the layers are loaded for them only.

use crate::budgets::minimum;
use crate::reloading::{self, dir};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_engine::options::{ContextOptions, DraftOptions, DraftSource, MemoryOptions};
use terrace_engine::{Answer, DraftCounts, Engine, EngineError, Mode, NoDrafts, Options, Unfit};
use terrace_ggml::llama::Sampling;
use terrace_model::MtpUse;
use terrace_plan::{Budget, Manage};
use terrace_quantize::{QuantizeOptions, QuantizePlan};
use terrace_testkit::MtpReads;
use terrace_testkit::released::{Released, architectures};

/// Types with kernels of several columns, and others.
const MIXTURES: [&str; 4] = ["Q4_K_M", "Q8_0", "Q5_0", "F16"];

/// The architectures whose MTP layers draft, and how many layers the models have.
const DRAFTING: [(&str, u32); 9] = [
    ("cohere2moe", 1),
    ("deepseek2", 1),
    ("deepseek32", 1),
    ("glm-dsa", 1),
    ("glm4moe", 1),
    ("hy_v3", 1),
    ("hy_v3", 3),
    ("step35", 1),
    ("step35", 2),
];

/// A model with MTP layers; the values of the tensor `other` are another model's.
fn write(dir: &Path, arch: &str, layers: u32, mixture: &str, other: Option<&str>) -> PathBuf {
    written(dir, (arch, layers, MtpReads::Token), mixture, other)
}

fn written(
    dir: &Path,
    (arch, layers, reads): (&str, u32, MtpReads),
    mixture: &str,
    other: Option<&str>,
) -> PathBuf {
    let name = if other.is_some() { "other" } else { "model" };
    let (full, path) = (dir.join("full.gguf"), dir.join(format!("{arch}-{layers}-{name}.gguf")));
    let released = Released::with_mtp(arch, true, layers, reads).unwrap();
    released.write(&full, 1, other.map(|tensor| (tensor, 2))).unwrap();
    let options = QuantizeOptions { threads: 1, ..QuantizeOptions::new(&full, mixture.parse().unwrap()) };
    QuantizePlan::new(&options).unwrap().write(&path, &mut |_| ControlFlow::Continue(())).unwrap();
    path
}

fn with(options: &Options, source: DraftSource, most: Option<u32>) -> Options {
    Options {
        drafts: DraftOptions {
            draft: Some(source),
            draft_max: most,
            draft_ungated: true,
            ..DraftOptions::default()
        },
        ..options.clone()
    }
}

fn refusal(options: Options) -> NoDrafts {
    terrace_testkit::needs_own_process();
    match Engine::load(options, &mut |_| ControlFlow::Continue(())) {
        Err(EngineError::Unfit(Unfit::Drafts(reason))) => reason,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("drafts are not refused"),
    }
}

/// What a run with drafts of the layers loads, and one without.
#[test]
fn the_layers_are_loaded_for_drafts_only() {
    let dir = dir();
    let mut drafting = Vec::new();
    for arch in architectures().into_iter().filter(|arch| DRAFTING.iter().any(|(name, _)| name == arch)) {
        let model = write(dir.path(), &arch, 1, "Q4_K_M", None);
        let size = |source: DraftSource| {
            let engine = reloading::load(with(&reloading::options(&model, Manage::None), source, None));
            (engine.plan().placement.clone().unwrap().resident, engine.draft_source())
        };
        let file = terrace_ggml::gguf::read(&model).unwrap();
        assert!(matches!(file.mtp_use(), MtpUse::Drafts { .. }), "{arch}");
        assert_eq!(size(DraftSource::Mtp), (file.size(), Some("the model's MTP layers".into())));
        let (off, ngram) = (size(DraftSource::Off), size(DraftSource::Ngram));
        let matrix = file.tensor("blk.2.nextn.eh_proj.weight").unwrap().size();
        assert!(off.0 + matrix <= file.size(), "{arch}: {off:?}");
        assert_eq!((off.1, ngram), (None, (off.0, Some("the text itself".into()))));
        drafting.push(arch);
    }
    let mut tested: Vec<&str> = DRAFTING.iter().map(|(arch, _)| *arch).collect();
    tested.dedup();
    assert_eq!(drafting, tested);
}

/// What a run answers: greedily and by chance, with the bits after the prompt.
#[derive(Debug, PartialEq)]
struct Answers {
    prompt: Vec<u32>,
    tokens: Vec<Vec<i32>>,
}

const PROMPT: &str =
    "The water goes down from one terrace to the next, and the rice stands in it. The water ";

fn generate(engine: &mut Engine, prompt: &[i32], n: usize, sampling: &Sampling) -> Answer {
    let mut session = engine.session();
    engine.generate(&mut session, prompt, Some(n), sampling, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn answers(engine: &mut Engine, n: usize) -> Answers {
    let prompt = engine.tokenize(PROMPT, true, false).unwrap();
    generate(engine, &prompt, 0, &Sampling::greedy());
    let bits = engine.logits().unwrap().iter().map(|logit| logit.to_bits()).collect();
    let chance = Sampling { temp: 0.3, seed: 7, ..Sampling::default() };
    let mut tokens: Vec<_> =
        [Sampling::greedy(), chance].iter().map(|how| generate(engine, &prompt, n, how).tokens).collect();
    // A second turn, whose prompt follows an answer.
    let mut session = engine.session();
    for _ in 0..2 {
        let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
        tokens.push(
            engine.generate(&mut session, &prompt, Some(n / 2), &Sampling::greedy(), go_on).unwrap().tokens,
        );
    }
    Answers { prompt: bits, tokens }
}

mod answers_with_drafts_are_plain_ones {
    terrace_testkit::each!(super::part: first = 0, second = 1, third = 2, fourth = 3);
}

fn part(part: usize) {
    let dir = dir();
    let n = terrace_testkit::thorough(24, 120);
    let mut wrong = Vec::new();
    for (number, (arch, layers)) in DRAFTING.into_iter().enumerate().filter(|(number, _)| number % 4 == part)
    {
        let mixture = MIXTURES[number % MIXTURES.len()];
        let model = write(dir.path(), arch, layers, mixture, None);
        for (manage, least) in [(Manage::All, true), (Manage::Experts, false), (Manage::None, false)] {
            let of = reloading::options(&model, manage);
            let ram_budget =
                if least { Budget::Bytes(minimum(&model, manage)) } else { of.memory.ram_budget };
            let memory = MemoryOptions { ram_budget, ..of.memory };
            let options = Options { memory, ..of };
            let expected = answers(&mut reloading::load(options.clone()), n);
            for most in [1, 3, 6] {
                let what = format!("{arch} with {layers} in {mixture}, streaming {manage}, {most} drafts");
                let mut engine = reloading::load(with(&options, DraftSource::Mtp, Some(most)));
                let got = answers(&mut engine, n);
                if got != expected {
                    wrong.push(format!("{what}: other answers"));
                }
                let DraftCounts { passes, drafted, accepted } = engine.draft_counts().unwrap();
                eprintln!("{what}: {accepted} of {drafted} right in {passes} passes");
                if accepted * 3 < drafted.min(passes) {
                    wrong.push(format!("{what}: {accepted} of {drafted} right in {passes} passes"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A layer that reads hidden states only is right where each token comes with that of the token before,
/// and each token follows from the last one: not where it was chosen by chance.
#[test]
fn each_token_comes_with_the_hidden_state_of_the_one_before() {
    let dir = dir();
    for arch in ["glm4moe", "hy_v3", "step35"] {
        let model = written(dir.path(), (arch, 1, MtpReads::Hidden), "F16", None);
        let options = reloading::options(&model, Manage::Experts);
        let of = |engine: &mut Engine| -> Vec<Vec<i32>> {
            let prompt = engine.tokenize(PROMPT, true, false).unwrap();
            let texts = (1..9).map(|end| &prompt[..prompt.len() - end]);
            texts.map(|text| generate(engine, text, 12, &Sampling::greedy()).tokens).collect()
        };
        let expected = of(&mut reloading::load(options.clone()));
        for most in [1, 3] {
            let mut engine = reloading::load(with(&options, DraftSource::Mtp, Some(most)));
            assert_eq!(of(&mut engine), expected, "{arch}");
            let DraftCounts { passes, drafted, accepted } = engine.draft_counts().unwrap();
            eprintln!("{arch}, {most} drafts: {accepted} of {drafted} right in {passes} passes");
            assert!(accepted * 2 > drafted / u64::from(most), "{arch}: {accepted} of {drafted} in {passes}");
        }
    }
}

/// A text that is longer than a graph, and than what is kept until it is fed.
#[test]
fn long_answers_with_drafts_are_plain_ones() {
    let dir = dir();
    for (arch, layers) in [("step35", 2), ("glm4moe", 1)] {
        let model = write(dir.path(), arch, layers, "Q4_K_M", None);
        let of = reloading::options(&model, Manage::Experts);
        let context = ContextOptions { ctx: Some(2048), ubatch: Some(256), ..of.context };
        let options = Options { context, ..of };
        let of = |engine: &mut Engine| {
            let text = engine.tokenize(&PROMPT.repeat(14), true, false).unwrap();
            assert!(text.len() > 600, "{}", text.len());
            generate(engine, &text, 40, &Sampling::greedy()).tokens
        };
        let expected = of(&mut reloading::load(options.clone()));
        let mut engine = reloading::load(with(&options, DraftSource::Mtp, Some(3)));
        assert_eq!(of(&mut engine), expected, "{arch}");
        let counts = engine.draft_counts().unwrap();
        assert!(counts.accepted > 10, "{counts:?}");
    }
}

#[test]
fn models_without_layers_that_draft_are_refused() {
    let dir = dir();
    let options = |model: &Path| with(&reloading::options(model, Manage::None), DraftSource::Mtp, None);
    let plain = dir.path().join("plain.gguf");
    Released::new("glm4moe", true).unwrap().write(&plain, 1, None).unwrap();
    assert!(matches!(refusal(options(&plain)), NoDrafts::NoMtp));
    let states = dir.path().join("states.gguf");
    Released::with_mtp("qwen35moe", true, 1, MtpReads::Token).unwrap().write(&states, 1, None).unwrap();
    assert!(matches!(refusal(options(&states)), NoDrafts::States));
    let stock = Options { mode: Mode::Stock { repack: false }, ..options(&plain) };
    assert!(matches!(refusal(stock), NoDrafts::Stock));
}
