//! Slots draft each for itself, and their answers are those without drafts.

use crate::reloading::{self, dir, from_file};
use crate::served::{self, ask, job, lone, models, serve};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use terrace_engine::options::{DraftOptions, DraftSource};
use terrace_engine::{Answer, Engine, Options};
use terrace_ggml::llama::Sampling;
use terrace_plan::Manage;
use terrace_quantize::{QuantizeOptions, QuantizePlan};
use terrace_serving::ServingOptions;
use terrace_testkit::MtpReads;
use terrace_testkit::released::Released;

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

fn generate(engine: &mut Engine, prompt: &[i32], n: usize) -> Answer {
    let mut session = engine.session();
    let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
    engine.generate(&mut session, prompt, Some(n), &Sampling::greedy(), go_on).unwrap()
}

/// A server's slots draft for themselves, and go on after a cancelled answer.
#[test]
fn slots_with_drafts_answer_as_if_they_were_alone() {
    let options = served::options(true);
    let jobs = [(0, 90, 40), (2000, 30, 70), (700, 60, 50), (0, 90, 20)];
    let mut engine = served::load(options.clone());
    let jobs: Vec<_> = jobs.iter().map(|&(from, len, n)| job(&served::text(&engine, from, len), n)).collect();
    let expected: Vec<_> = jobs.iter().map(|job| lone(&mut engine, job).tokens).collect();
    drop(engine);
    for source in [DraftSource::Ngram, DraftSource::Model(models().join("tiny-moe-Q4_K.gguf"))] {
        let serving = serve(with(&options, source.clone(), 4), ServingOptions { slots: 3, ..served::PLAIN });
        let told: Vec<_> = jobs.iter().map(|job| ask(&serving, job.clone()).unwrap()).collect();
        for (i, (told, expected)) in told.into_iter().zip(&expected).enumerate() {
            let answer = told.answer();
            assert_eq!(&answer.tokens, expected, "{source}, job {i}");
            assert!(source == DraftSource::Ngram || answer.timings.accepted > 0, "{:?}", answer.timings);
        }
    }
}

const PROMPT: &str =
    "The water goes down from one terrace to the next, and the rice stands in it. The water ";

/// A model with an MTP layer; the values of the tensor `other` are another model's.
fn write(dir: &Path, arch: &str, other: Option<&str>) -> PathBuf {
    let name = if other.is_some() { "other" } else { "model" };
    let (full, path) = (dir.join("full.gguf"), dir.join(format!("{name}.gguf")));
    let released = Released::with_mtp(arch, true, 1, MtpReads::Token).unwrap();
    released.write(&full, 1, other.map(|tensor| (tensor, 2))).unwrap();
    let options = QuantizeOptions { threads: 1, ..QuantizeOptions::new(&full, "Q4_K_M".parse().unwrap()) };
    QuantizePlan::new(&options).unwrap().write(&path, &mut |_| ControlFlow::Continue(())).unwrap();
    path
}

#[test]
fn slots_draft_each_for_itself_and_after_a_reload() {
    let dir = dir();
    let (model, tensor) = (write(dir.path(), "hy_v3", None), "blk.1.attn_q.weight");
    let other = write(dir.path(), "hy_v3", Some(tensor));
    let options = reloading::options(&model, Manage::Experts);
    let mut engine = served::load(options.clone());
    let prompt = engine.tokenize(PROMPT, true, false).unwrap();
    let jobs: Vec<_> = [(0, 20), (5, 30), (9, 12)].map(|(from, n)| job(&prompt[from..], n)).into();
    let expected: Vec<_> = jobs.iter().map(|job| lone(&mut engine, job).tokens).collect();
    let swap = [from_file(tensor, &other)];
    engine.swap(&swap).unwrap();
    let swapped = generate(&mut engine, &prompt, 30).tokens;
    drop(engine);
    let drafting = with(&options, DraftSource::Mtp, 4);
    let serving = serve(drafting.clone(), ServingOptions { slots: 3, ..served::PLAIN });
    let told: Vec<_> = jobs.iter().map(|job| ask(&serving, job.clone()).unwrap()).collect();
    let mut accepted = 0;
    for (i, (told, expected)) in told.into_iter().zip(&expected).enumerate() {
        let answer = told.answer();
        assert_eq!(&answer.tokens, expected, "job {i}");
        accepted += answer.timings.accepted;
    }
    assert!(accepted > 10, "{accepted}");
    drop(serving);
    let mut engine = reloading::load(drafting);
    generate(&mut engine, &prompt, 10);
    engine.swap(&swap).unwrap();
    let before = engine.draft_counts().unwrap();
    assert_eq!(generate(&mut engine, &prompt, 30).tokens, swapped);
    let counts = engine.draft_counts().unwrap().since(&before);
    assert!(counts.accepted > 5, "{counts:?}");
}
