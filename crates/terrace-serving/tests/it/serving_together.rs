//! Slots whose next tokens are computed in one pass: each gets the bits that it gets alone.

use crate::made::{Model, models_of};
use crate::reloading::{self, dir};
use crate::served::{Job, PLAIN, ask, job, options, serve};
use std::ops::ControlFlow;
use terrace_engine::options::{ComputeOptions, ContextOptions, KernelChoice, KernelOptions};
use terrace_engine::{Engine, EngineError, Options, TokenProbs};
use terrace_plan::Manage;
use terrace_serving::{BatchSlots, Serving, ServingOptions};

/// Asks all jobs at once, or one after the other. Returns tokens with their probabilities, and the number
/// of passes.
fn answers(serving: &Serving, jobs: &[Job], at_once: bool) -> (Vec<Vec<TokenProbs>>, u64) {
    let before = serving.status().totals.passes;
    let ask = |job: &Job| ask(serving, job.clone()).unwrap();
    let answers = if at_once {
        let told: Vec<_> = jobs.iter().map(ask).collect();
        told.into_iter().map(|told| told.answer().probs).collect()
    } else {
        jobs.iter().map(|job| ask(job).answer().probs).collect()
    };
    (answers, serving.status().totals.passes - before)
}

/// Jobs with prompts of these lengths, which tell the probabilities of their tokens.
fn jobs(vocabulary: usize, lengths: &[usize], n: usize) -> Vec<Job> {
    let text = |seed: usize, len: usize| -> Vec<i32> {
        (0..len).map(|at| (3 + (at * (37 + seed) + at * at) % (vocabulary - 3)) as i32).collect()
    };
    let each = |(seed, &len): (usize, &usize)| Job { scored: Some(3), ..job(&text(seed, len), n) };
    lengths.iter().enumerate().map(each).collect()
}

mod every_architecture_answers_slots_as_if_alone {
    terrace_testkit::each!(super::part: first = 0, second = 1, third = 2, fourth = 3);
}

mod every_architecture_answers_slots_as_if_alone_with_fast_kernels {
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
    let (mut wrong, mut together, mut alone, mut without) = (Vec::new(), 0, Vec::new(), Vec::new());
    terrace_testkit::needs_own_process();
    for Model { number, name, mixture, path: model } in models_of(part, MIXTURES, dir.path()) {
        let manage = [Manage::None, Manage::All][number / 2 % 2];
        let of = reloading::options(&model, manage);
        // Some are not made for more.
        let context =
            ContextOptions { ctx: Some(64), ubatch: Some(64), sequences: 3, unified: false, ..of.context };
        let serving =
            match Engine::load(Options { context, kernels: KernelOptions { kernels }, ..of }, &mut |_| {
                ControlFlow::Continue(())
            }) {
                Ok(engine) => Serving::start(engine, ServingOptions { slots: 3, ..PLAIN }),
                // llama.cpp itself makes no context with several caches for one of them.
                Err(EngineError::Context(_)) => {
                    without.push(name.clone());
                    continue;
                }
                Err(error) => panic!("{name}: {error}"),
            };
        let jobs = jobs(serving.facts().vocabulary, &[9, 21, 14], 8);
        let (expected, one_by_one) = answers(&serving, &jobs, false);
        let (told, passes) = answers(&serving, &jobs, true);
        if told != expected {
            wrong.push(format!("{name} in {mixture}, streaming {manage}"));
        }
        if passes < one_by_one { together += 1 } else { alone.push(name.clone()) }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(without.len() < 2, "no context with several caches: {without:?}");
    // Those with states, or beyond a sliding window, are half of some parts.
    assert!(together > alone.len(), "{together} together, one by one: {alone:?}");
}

/// Keys are dealt to threads from 512 on, and each slot has its own number of them.
#[test]
fn slots_of_different_lengths_answer_as_if_alone() {
    use KernelChoice::{Exact, Fast};
    for (streamed, kernels) in [(false, Exact), (true, Exact), (false, Fast), (true, Fast)] {
        let of = options(streamed);
        let context = ContextOptions { ctx: Some(1024), ubatch: None, batch: 1024, ..of.context };
        let compute = ComputeOptions { threads: Some(2), threads_batch: Some(1), ..of.compute };
        let options = Options { context, compute, kernels: KernelOptions { kernels }, ..of };
        let serving = serve(options, ServingOptions { slots: 6, ..PLAIN });
        let jobs = jobs(serving.facts().vocabulary, &[250, 500, 30, 760, 640, 505], 16);
        let (expected, one_by_one) = answers(&serving, &jobs, false);
        let (told, passes) = answers(&serving, &jobs, true);
        assert_eq!(told, expected, "streamed: {streamed}, {kernels:?}");
        assert!(2 * passes < one_by_one, "{passes} passes together, {one_by_one} one by one");
    }
}

/// Two passes of four slots: with experts, more would be computed by other kernels.
#[test]
fn many_slots_answer_as_if_alone() {
    let serving = serve(options(false), ServingOptions { slots: 8, ..PLAIN });
    let jobs = jobs(serving.facts().vocabulary, &[5, 9, 12, 6, 20, 7, 3, 10], 24);
    let (expected, _) = answers(&serving, &jobs, false);
    let (told, _) = answers(&serving, &jobs, true);
    assert_eq!(told, expected);
    let off = serve(options(false), ServingOptions { slots: 8, batch_slots: BatchSlots::Off, ..PLAIN });
    assert_eq!(answers(&off, &jobs, true).0, expected);
}

/// The tokens of a pass tell together what the next layer will need.
#[test]
fn passes_of_several_slots_are_read_ahead() {
    const TOKENS: usize = 24;
    let serving = serve(options(true), ServingOptions { slots: 4, ..PLAIN });
    // Prompts are longer than what is guessed for.
    let jobs = jobs(serving.facts().vocabulary, &[30, 40, 30, 40], TOKENS);
    let (_, passes) = answers(&serving, &jobs, true);
    assert!(passes < 2 * TOKENS as u64, "{passes} passes for {TOKENS} tokens of 4 slots");
    let engine = serving.stop();
    let foretold = engine.foretold().unwrap();
    // A lone token chooses 4 experts in each of 5 layers, so most of these are of several tokens.
    assert!(foretold.chosen > 2 * passes * 5 * 4, "{foretold:?} in {passes} passes");
    assert!(2 * foretold.guessed > foretold.chosen, "{foretold:?}");
    let ahead = engine.store_stats().unwrap();
    assert!(ahead.speculation_used > passes, "{ahead:?}");
}
