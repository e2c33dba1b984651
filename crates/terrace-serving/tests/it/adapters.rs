//! Slots with adapters of their own answer as engines with these adapters alone.

use crate::reloading::{dir, load};
use crate::served::{self, Job, PLAIN, ask, job};
use std::path::Path;
use terrace_engine::options::{AdapterOption, ContextOptions, MemoryOptions, PromptCacheOptions};
use terrace_engine::{Options, Scales};
use terrace_model::ByteSize;
use terrace_plan::Budget;
use terrace_serving::{BatchSlots, Serving, ServingOptions};
use terrace_testkit::{AdapterSpec, write_adapter};

fn adapter(model: &Path, seed: u64, weights: &[impl AsRef<str>], name: &str) -> AdapterOption {
    let weights: Vec<&str> = weights.iter().map(AsRef::as_ref).collect();
    let spec = AdapterSpec { seed, weights: &weights, ..AdapterSpec::default() };
    let path = write_adapter(&spec, model, model.with_file_name(name)).unwrap();
    AdapterOption { path, scale: 1.0 }
}

/// A served model with an adapter, and the prompt.
fn served(streamed: bool, dir: &Path) -> (Options, Vec<i32>) {
    let of = served::options(streamed);
    let model = dir.join("model.gguf");
    std::fs::copy(&of.model, &model).unwrap();
    let adapters = vec![adapter(&model, 1, &["blk.1.ffn_up_exps.weight", "blk.1.attn_q.weight"], "one.gguf")];
    let context = ContextOptions { ctx: Some(512), ..of.context };
    let prompt = (0..90).map(|i| 3 + (i * 7) % 200).collect();
    let memory = MemoryOptions { ram_budget: Budget::Bytes(ByteSize::mib(8)), ..of.memory };
    let memory = if streamed { memory } else { served::options(false).memory };
    (Options { model, adapters, context, memory, ..of }, prompt)
}

/// The answer that an engine with this scale alone gives.
fn alone(options: &Options, scale: f32, job: &Job) -> Vec<i32> {
    let adapters = options.adapters.iter().map(|adapter| AdapterOption { scale, ..adapter.clone() });
    let mut engine = load(Options { adapters: adapters.collect(), ..options.clone() });
    served::lone(&mut engine, job).tokens
}

#[test]
fn answers_with_other_scales_are_those_of_engines_with_these() {
    let dir = dir();
    for streamed in [false, true] {
        let (options, prompt) = served(streamed, dir.path());
        let job = job(&prompt, 12);
        let scales = [0.0, 1.0, 2.0, 1.0, 0.0];
        let expected: Vec<_> = scales.map(|scale| alone(&options, scale, &job)).into();
        assert!(expected[0] != expected[1] && expected[1] != expected[2], "{expected:?}");
        // All at the same time; together only those with the same adapters, which rounds differently.
        let serving = served::serve(options, ServingOptions { slots: 5, ..PLAIN });
        let told = scales.map(|scale| {
            let scales = Scales::new(&[scale]);
            ask(&serving, Job { scales, reuse: true, ..job.clone() }).unwrap()
        });
        for (told, expected) in told.into_iter().zip(&expected) {
            assert_eq!(told.answer().tokens, *expected, "streamed {streamed}");
        }
    }
}

#[test]
fn slots_with_other_adapters_are_not_computed_together() {
    let dir = dir();
    let (options, prompt) = served(false, dir.path());
    let together = ServingOptions { slots: 4, batch_slots: BatchSlots::On, ..PLAIN };
    let serving = served::serve(options, together);
    let answers = |scales: [f32; 4]| {
        let job = |scale: f32| Job { scales: Scales::new(&[scale]), ..job(&prompt, 20) };
        let told = scales.map(|scale| ask(&serving, job(scale)).unwrap());
        let answers = told.map(|told| told.answer().tokens);
        let totals = serving.status().totals;
        (answers, totals.passes)
    };
    let (plain, one) = answers([0.0; 4]);
    let (mixed, two) = answers([0.0, 2.0, 0.0, 2.0]);
    assert!(plain.iter().all(|tokens| *tokens == plain[0]));
    assert!(mixed[0] == mixed[2] && mixed[1] == mixed[3] && mixed[0] != mixed[1], "{mixed:?}");
    assert!(two - one > one, "two kinds of slots take more passes than one: {one}, {two}");
}

fn reusing(serving: &Serving, prompt: &[i32], scale: f32) -> terrace_engine::Answer {
    ask(serving, Job { reuse: true, scales: Scales::new(&[scale]), ..job(prompt, 4) }).unwrap().answer()
}

#[test]
fn what_other_adapters_computed_is_not_reused() {
    let dir = dir();
    let (options, prompt) = served(false, dir.path());
    let expected = [0.0, 1.0].map(|scale| alone(&options, scale, &job(&prompt, 4)));
    let cache = PromptCacheOptions {
        cache_ram: Budget::Bytes(ByteSize::mib(64)),
        cache_disk: Some((dir.path().join("kept"), ByteSize::mib(64))),
        files: true,
        slot_save_path: None,
    };
    let options = Options { prompt_cache: cache, ..options };
    {
        let serving = served::serve(options.clone(), PLAIN);
        // One slot, whose contents are kept in RAM when the other adapter takes it.
        for (round, scale) in [0.0_f32, 1.0, 0.0, 1.0].into_iter().enumerate() {
            let answer = reusing(&serving, &prompt, scale);
            let held = if round < 2 { 0 } else { prompt.len() - 1 };
            assert_eq!((answer.reused, &answer.tokens), (held, &expected[scale as usize]), "round {round}");
        }
        assert_eq!(reusing(&serving, &prompt, 0.5).reused, 0);
    }
    // In files as well, which later runs read.
    let without = Options {
        prompt_cache: PromptCacheOptions {
            cache_ram: Budget::Bytes(ByteSize::ZERO),
            ..options.prompt_cache.clone()
        },
        ..options
    };
    let serving = served::serve(without.clone(), PLAIN);
    for scale in [1.0, 0.0] {
        let answer = reusing(&serving, &prompt, scale);
        assert_eq!((answer.reused, &answer.tokens), (prompt.len() - 1, &expected[scale as usize]));
    }
    assert_eq!(reusing(&serving, &prompt, 0.25).reused, 0);
    drop(serving);
    // Without the adapter, only what was computed without it.
    let serving = served::serve(Options { adapters: Vec::new(), ..without }, PLAIN);
    assert_eq!(reusing(&serving, &prompt, 0.0).reused, prompt.len() - 1);
    assert_eq!(serving.status().prompt_cache.disk_refused, 0);
}

/// A session's file belongs to the adapters that it was computed with.
#[test]
fn sessions_that_were_saved_belong_to_their_adapters() {
    let dir = dir();
    let (options, prompt) = served(false, dir.path());
    let options = Options {
        prompt_cache: PromptCacheOptions { files: true, ..PromptCacheOptions::default() },
        ..options
    };
    let path = dir.path().join("session");
    let scaled = |scale: f32| {
        let adapters = options.adapters.iter().map(|adapter| AdapterOption { scale, ..adapter.clone() });
        load(Options { adapters: adapters.collect(), ..options.clone() })
    };
    {
        let mut engine = scaled(1.0);
        let mut session = engine.session();
        let go_on = &mut |_: &[u8]| std::ops::ControlFlow::Continue(());
        let sampling = terrace_ggml::llama::Sampling::greedy();
        engine.generate(&mut session, &prompt, Some(1), &sampling, go_on).unwrap();
        let kept = engine.keep(&session).unwrap();
        let mut bytes = Vec::new();
        let key = engine.cache_key().unwrap().clone();
        terrace_engine::prompt_cache::write_file(&mut bytes, &key, &kept).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    for (scale, recalled) in [(1.0, prompt.len() - 1), (0.5, 0)] {
        let mut engine = scaled(scale);
        let key = engine.cache_key().unwrap().clone();
        let kept = terrace_engine::prompt_cache::read_file(&path, &key, 512).unwrap();
        let mut session = engine.session();
        assert_eq!(engine.recall(&mut session, &kept, &prompt).unwrap(), recalled, "{scale}");
    }
    let engine = load(Options { adapters: Vec::new(), ..options });
    let key = engine.cache_key().unwrap();
    let refused = terrace_engine::prompt_cache::read_file(&path, key, 512).unwrap_err();
    assert_eq!(refused, "kept for other adapters");
}
