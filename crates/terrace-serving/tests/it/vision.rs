//! What is held of images is reused for the same images only.

use crate::reloading::{dir, load, options, write};
use crate::served::{PLAIN, to_flow};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use terrace_engine::options::{ContextOptions, PromptCacheOptions, VisionOptions};
use terrace_engine::{Answer, Images, LineLimits, Options, Scales};
use terrace_ggml::llama::Sampling;
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};
use terrace_serving::{Event, Job, Prompt, Serving, ServingOptions};
use terrace_testkit::{Arch, ProjectorKind, ProjectorSpec, Spec, picture, write_projector};

/// Tokens of the greedy answers.
const ANSWER: usize = 6;

fn made(dir: &Path, arch: Arch, kind: ProjectorKind) -> (PathBuf, PathBuf) {
    let spec = Spec::new(arch);
    let model = write(&spec, dir.join("model.gguf"));
    let spec = ProjectorSpec { kind, width: u64::from(spec.embd), seed: 5 };
    (model, write_projector(&spec, dir.join("mmproj.gguf")).unwrap())
}

fn seeing(of: Options, projector: &Path, ubatch: u32) -> Options {
    let vision = VisionOptions { mmproj: Some(projector.into()), ..VisionOptions::default() };
    Options { vision, context: ContextOptions { ubatch: Some(ubatch), ..of.context }, ..of }
}

fn job(serving: &Serving, text: &str, files: &[Vec<u8>]) -> Job {
    let mut images = Images::default();
    let mut parts = text.split("<__media__>");
    let mut marked = parts.next().unwrap().to_owned();
    for (part, file) in parts.zip(files) {
        marked += &images.push(file.clone());
        marked += part;
    }
    let prompt = serving.read_prompt(&marked, &images, true, &|| true).unwrap();
    Job {
        prompt: Prompt::new(prompt, serving.facts()).unwrap(),
        n_max: Some(ANSWER),
        sampling: Sampling::greedy(),
        stop: Vec::new(),
        lines: LineLimits::default(),
        reuse: true,
        scales: Scales::default(),
        slot: None,
        probs: None,
        after_samplers: false,
        tokens: false,
        scored: false,
    }
}

fn ask(serving: &Serving, text: &str, files: &[Vec<u8>]) -> Answer {
    let (send, events) = channel();
    let prepared = serving.prepare(job(serving, text, files)).unwrap();
    let _ticket = serving.submit(prepared, Box::new(move |event| to_flow(send.send(event).is_ok()))).unwrap();
    let ended = events.iter().find_map(|event| match event {
        Event::Finished(answer) => Some(Ok(*answer)),
        Event::Failed(error) => Some(Err(error)),
        _ => None,
    });
    ended.unwrap().unwrap()
}

/// A conversation goes on in its slot, comes back from memory, and shares a prefix up to an image that
/// differs: answers are those of a server that reuses nothing.
fn reused(arch: Arch, kind: ProjectorKind) {
    let dir = dir();
    let (model, projector) = made(dir.path(), arch, kind);
    let with = |cache: ByteSize, slots: u32| {
        let of = seeing(options(&model, Manage::None), &projector, 64);
        let context = ContextOptions { sequences: slots, unified: false, ctx: Some(512), ..of.context };
        let prompt_cache = PromptCacheOptions { cache_ram: Budget::Bytes(cache), ..of.prompt_cache };
        let engine = load(Options { context, prompt_cache, ..of });
        Serving::start(engine, ServingOptions { slots, ..PLAIN })
    };
    let fresh = |text: &str, files: &[Vec<u8>]| {
        let serving = with(ByteSize::ZERO, 1);
        let answer = ask(&serving, text, files);
        drop(serving.stop());
        answer.tokens
    };
    let long =
        "Many words come before the picture, so that it pays to keep them: <__media__> and then it goes ";
    let longer = format!("{long}on, with more words and another one <__media__> at the end, ");
    let (one, other) = (picture(64, 64, 1), picture(64, 64, 2));
    let serving = with(ByteSize::mib(64), 1);
    let mut reused = Vec::new();
    let mut same = |text: &str, files: &[Vec<u8>]| {
        let answer = ask(&serving, text, files);
        assert_eq!(answer.tokens, fresh(text, files), "{arch}, {kind:?}: {text}");
        reused.push(answer.reused);
    };
    same(long, std::slice::from_ref(&one));
    same(&longer, &[one.clone(), other.clone()]);
    // Another picture in the same place: what comes before it.
    same(long, std::slice::from_ref(&other));
    same("Something else takes the slot, and it is long enough that it has to be kept as well. ", &[]);
    same(&longer, &[one.clone(), other.clone()]);
    let pictures = reused[1] > reused[2];
    assert!(pictures, "{arch}, {kind:?}: {reused:?}");
    assert_eq!(reused[0], 0);
    assert!(reused[4] > reused[2], "it came back with its pictures: {arch}, {kind:?}: {reused:?}");
    drop(serving.stop());
}

#[test]
fn what_is_held_of_images_is_reused_for_the_same_images_only() {
    reused(Arch::Qwen3Moe, ProjectorKind::Mlp);
}

#[test]
fn what_is_held_of_images_in_three_dimensions_is_reused_for_the_same_images_only() {
    reused(Arch::Qwen35Moe, ProjectorKind::Qwen2Vl);
}
