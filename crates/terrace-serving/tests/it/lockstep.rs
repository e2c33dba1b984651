//! Batches: jobs in lockstep, and jobs that all others come before.

use crate::served::{Job, PLAIN, Reply, ask, job, load, lone, options, serve, text};
use terrace_engine::options::{ContextOptions, KernelChoice, KernelOptions};
use terrace_engine::{Engine, Options};
use terrace_serving::{Lockstep, Prompt, ServingOptions};

/// Jobs with prompts and answers of different lengths.
fn jobs(engine: &Engine, count: usize) -> Vec<Job> {
    let of = |at: usize| {
        let (len, n) = (3 + at * 17 % 61, 1 + at * 7 % 23);
        job(&text(engine, 1000 + 40 * at, len), n)
    };
    (0..count).map(of).collect()
}

fn answers(told: Vec<Reply>) -> Vec<Vec<i32>> {
    told.into_iter().map(|reply| reply.answer().tokens).collect()
}

/// More slots than share a pass otherwise, which are filled again as they become free: each job gets the bits that it
/// gets alone.
#[test]
fn many_more_jobs_than_slots_answer_as_if_alone() {
    for (streamed, kernels) in
        [(false, KernelChoice::Exact), (true, KernelChoice::Exact), (true, KernelChoice::Fast)]
    {
        let options = Options { kernels: KernelOptions { kernels }, ..options(streamed) };
        let mut engine = load(options.clone());
        let jobs = jobs(&engine, 90);
        let expected: Vec<_> = jobs.iter().map(|job| lone(&mut engine, job).tokens).collect();
        drop(engine);
        let lockstep = Some(Lockstep::default());
        let serving = serve(options, ServingOptions { slots: 24, queue: 1000, lockstep, ..PLAIN });
        let told = jobs.iter().map(|job| ask(&serving, job.clone()).unwrap()).collect();
        let got = answers(told);
        let wrong = got.iter().zip(&expected).filter(|(got, expected)| got != expected).count();
        let totals = serving.status().totals;
        let (tokens, passes) = (totals.generated_tokens, totals.passes);
        eprintln!(
            "streamed {streamed}, {kernels:?}: {tokens} tokens and {} prompts in {passes} passes",
            jobs.len()
        );
        assert_eq!(wrong, 0, "streamed {streamed}, {kernels:?}: of {}", jobs.len());
        // Prompts take passes of their own where nothing is read.
        assert!(passes < tokens / 3, "{passes} passes for {tokens} tokens");
    }
}

/// Prompts that begin alike are evaluated once as far as they do, in whole parts.
#[test]
fn what_prompts_begin_with_is_evaluated_once() {
    const PART: usize = 16;
    for streamed in [false, true] {
        let of = options(streamed);
        // Alone, prompts are evaluated in such parts as well.
        let mut engine = load(Options {
            context: ContextOptions { ubatch: Some(PART as u32), ..of.context },
            ..of.clone()
        });
        let common = text(&engine, 5000, 100);
        let with = |at: usize| [&common[..], &text(&engine, 7000 + 100 * at, 5 + 3 * at)].concat();
        let mut all: Vec<Job> = (0..12).map(|at| Job { reuse: true, ..job(&with(at), 9) }).collect();
        all[7].reuse = false;
        let expected: Vec<_> =
            all.iter().map(|one| lone(&mut engine, &Job { reuse: false, ..one.clone() }).tokens).collect();
        drop(engine);
        let lockstep = Some(Lockstep { part: Some(PART) });
        let serving = serve(of, ServingOptions { slots: 5, queue: 1000, lockstep, ..PLAIN });
        let told = all.iter().map(|one| ask(&serving, one.clone()).unwrap()).collect();
        assert_eq!(answers(told), expected, "streamed {streamed}");
        // 96 of the 100 tokens are whole parts; the first one evaluates them, and the one that may not reuse them.
        let reused = serving.status().totals.reused_tokens;
        assert_eq!(reused, 10 * 96, "streamed {streamed}");
    }
}

/// A job in the background; the others are ordinary ones.
fn behind(serving: &terrace_serving::Serving, job: &Job) -> Reply {
    let (send, events) = std::sync::mpsc::channel();
    let prompt = Prompt::new(job.prompt.clone(), serving.facts()).unwrap();
    let job = terrace_serving::Job {
        prompt,
        n_max: job.n_max,
        sampling: job.sampling.clone(),
        stop: Vec::new(),
        lines: Default::default(),
        reuse: false,
        slot: None,
        probs: None,
        after_samplers: false,
        tokens: false,
        scored: false,
        scales: Default::default(),
    };
    let job = serving.prepare(job).unwrap().in_background();
    let sink = Box::new(move |event| crate::served::to_flow(send.send(event).is_ok()));
    Reply::new(events, serving.submit(job, sink).unwrap())
}

#[test]
fn jobs_in_the_background_give_way() {
    let mut engine = load(options(false));
    let long = job(&text(&engine, 1000, 20), 300);
    let short = job(&text(&engine, 3000, 20), 20);
    let (of_long, of_short) = (lone(&mut engine, &long).tokens, lone(&mut engine, &short).tokens);
    drop(engine);
    let begun = |serving: &terrace_serving::Serving| {
        while serving.status().totals.generated_tokens == 0 {
            std::thread::yield_now();
        }
    };
    // The only slot is taken.
    let serving = serve(options(false), ServingOptions { slots: 1, ..PLAIN });
    let first = behind(&serving, &long);
    begun(&serving);
    assert_eq!(ask(&serving, short.clone()).unwrap().answer().tokens, of_short);
    let heard = first.all();
    assert!(heard.displaced && heard.end.is_err());
    assert_eq!(behind(&serving, &long).answer().tokens, of_long);
    // Of several slots one stays free for others, and while these are answered, nothing else is.
    let serving = serve(options(false), ServingOptions { slots: 3, ..PLAIN });
    let all: Vec<Reply> = (0..4).map(|_| behind(&serving, &long)).collect();
    begun(&serving);
    let working = |serving: &terrace_serving::Serving| {
        serving.status().slots.iter().filter(|slot| slot.prompt > 0).count()
    };
    assert_eq!(working(&serving), 2);
    assert_eq!(ask(&serving, short).unwrap().answer().tokens, of_short);
    for reply in all {
        let heard = reply.all();
        assert!(!heard.displaced);
        assert_eq!(heard.end.unwrap().tokens, of_long);
    }
}
