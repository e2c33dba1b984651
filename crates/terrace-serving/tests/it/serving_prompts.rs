//! Prompts of several slots that are evaluated in one pass: each gets the bits of a pass of its own.

use crate::made::{Model, models_of};
use crate::reloading::{self, dir};
use crate::served::{Job, PLAIN, ask, job, options, serve};
use std::ops::ControlFlow;
use terrace_engine::options::{ComputeOptions, ContextOptions, KernelChoice, KernelOptions};
use terrace_engine::{Engine, EngineError, Options, TokenProbs};
use terrace_plan::Manage;
use terrace_serving::{Serving, ServingOptions, SharePasses};

const SHARING: ServingOptions = ServingOptions { share_passes: SharePasses::Always, ..PLAIN };

/// Asks all jobs at once, or one after the other. Returns tokens with their probabilities, and how many
/// prompts shared a pass.
fn answers(serving: &Serving, jobs: &[Job], at_once: bool) -> (Vec<Vec<TokenProbs>>, u64) {
    let before = serving.status().totals.shared_prompts;
    let ask = |job: &Job| ask(serving, job.clone()).unwrap();
    let answers = if at_once {
        let told: Vec<_> = jobs.iter().map(ask).collect();
        told.into_iter().map(|told| told.answer().probs).collect()
    } else {
        jobs.iter().map(|job| ask(job).answer().probs).collect()
    };
    (answers, serving.status().totals.shared_prompts - before)
}

/// Jobs with prompts of these lengths, which tell the probabilities of their tokens.
fn jobs(vocabulary: usize, seed: usize, lengths: &[usize], n: usize) -> Vec<Job> {
    let text = |seed: usize, len: usize| -> Vec<i32> {
        (0..len).map(|at| (3 + (at * (37 + seed) + at * at) % (vocabulary - 3)) as i32).collect()
    };
    let each = |(at, &len): (usize, &usize)| Job { probs: Some(3), ..job(&text(seed + at, len), n) };
    lengths.iter().enumerate().map(each).collect()
}

mod every_architecture_evaluates_prompts_as_if_alone {
    terrace_testkit::each!(super::part: first = 0, second = 1, third = 2, fourth = 3);
}

mod every_architecture_evaluates_prompts_as_if_alone_with_fast_kernels {
    terrace_testkit::each!(super::fast_part: first = 0, second = 1, third = 2, fourth = 3);
}

/// Types with kernels of several columns, and others.
const MIXTURES: [&str; 4] = ["Q4_K_M", "Q8_0", "F16", "Q4_0"];

fn part(part: usize) {
    part_with(part, KernelChoice::Exact);
}

fn fast_part(part: usize) {
    part_with(part, KernelChoice::Fast);
}

fn part_with(part: usize, kernels: KernelChoice) {
    let dir = dir();
    let (mut wrong, mut together, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    terrace_testkit::needs_own_process();
    for Model { number, name, mixture, path: model } in models_of(part, MIXTURES, dir.path()) {
        let manage = [Manage::None, Manage::All][number / 2 % 2];
        let of = reloading::options(&model, manage);
        // Some are not made for more.
        let context = ContextOptions { ctx: Some(64), sequences: 3, unified: false, ..of.context };
        let serving =
            match Engine::load(Options { context, kernels: KernelOptions { kernels }, ..of }, &mut |_| {
                ControlFlow::Continue(())
            }) {
                Ok(engine) => Serving::start(engine, ServingOptions { slots: 3, ..SHARING }),
                // llama.cpp itself makes no context with several caches for one of them.
                Err(EngineError::Context(_)) => continue,
                Err(error) => panic!("{name}: {error}"),
            };
        let jobs = jobs(serving.facts().vocabulary, 0, &[21, 31, 26], 3);
        // A graph of several prompts that comes before one of a single prompt is trusted.
        let (told, shared) = answers(&serving, &jobs, true);
        let (expected, _) = answers(&serving, &jobs, false);
        let (again, shared_again) = answers(&serving, &jobs, true);
        if told != expected || again != expected {
            wrong
                .push(format!("{name} in {mixture}, streaming {manage}: {shared} and {shared_again} shared"));
        }
        if shared + shared_again > 0 { together.push(name) } else { alone.push(name) }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    // Those with states, with windows of fewer tokens, with attention as products, or with too little room to
    // fuse experts are the larger half of some parts.
    assert!(2 * together.len() > alone.len(), "together: {together:?}, one by one: {alone:?}");
}

/// Rows of an expert are above and below the number from which ggml has other kernels, attention has tiles of
/// 64 queries, and keys are shown in blocks of 256.
#[test]
fn prompts_of_many_lengths_are_evaluated_as_if_alone() {
    use KernelChoice::{Exact, Fast};
    for (streamed, kernels) in [(false, Exact), (true, Exact), (false, Fast), (true, Fast)] {
        let of = options(streamed);
        let context = ContextOptions { ctx: Some(1024), ubatch: Some(1024), batch: 1024, ..of.context };
        let compute = ComputeOptions { threads: Some(2), threads_batch: Some(2), ..of.compute };
        let options = Options { context, compute, kernels: KernelOptions { kernels }, ..of };
        let serving = serve(options, ServingOptions { slots: 4, ..SHARING });
        let vocabulary = serving.facts().vocabulary;
        let lengths =
            [[2, 3, 4, 2], [9, 12, 7, 8], [63, 64, 65, 90], [120, 200, 190, 210], [250, 256, 257, 255]];
        for (seed, lengths) in lengths.into_iter().enumerate() {
            let jobs = jobs(vocabulary, 10 * seed, &lengths, 4);
            let (told, shared) = answers(&serving, &jobs, true);
            // What slots hold would be reused.
            let other = self::jobs(vocabulary, 1000 + 10 * seed, &[5; 4], 1);
            answers(&serving, &other, true);
            let (expected, _) = answers(&serving, &jobs, false);
            assert_eq!(told, expected, "streamed: {streamed}, {kernels:?}, {lengths:?}");
            assert!(shared > 1, "{shared} of {lengths:?} shared");
        }
    }
}
