//! Slots of models of all kinds: what they hold, what the next job can reuse, and what happens when
//! a computation fails.

use crate::served::{Job, PLAIN, ask, job, load, lone, options, serve, text};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace_engine::options::{ContextOptions, MemoryOptions, TestingOptions};
use terrace_engine::{Engine, EngineError, Logits, Options, Unfit};
use terrace_ggml::llama::Sampling;
use terrace_serving::{BatchSlots, Event, Serving, ServingOptions};
use terrace_testkit::{Arch, Spec};

const FOUR: ServingOptions = ServingOptions { slots: 4, ..PLAIN };

fn tiny(arch: Arch) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let model = terrace_testkit::write(&Spec::new(arch), dir.path().join("model.gguf")).unwrap();
    (dir, model)
}

/// Meaningless tokens.
fn noise(seed: i32, len: usize) -> Vec<i32> {
    (0..len as i32).map(|i| 3 + (i * (7 + 2 * seed) + seed * 31) % 250).collect()
}

#[test]
fn slots_of_every_architecture_answer_as_if_they_were_alone() {
    for &arch in Arch::ALL {
        for streamed in [false, true] {
            if streamed && !arch.is_moe() {
                continue;
            }
            let (_dir, model) = tiny(arch);
            let options = Options { model, ..options(false) };
            let options = if streamed { streaming(options) } else { options };
            let jobs: Vec<Job> = [(1, 3), (70, 9), (33, 14), (8, 20), (45, 7), (130, 12)]
                .into_iter()
                .enumerate()
                .map(|(i, (len, n))| job(&noise(i as i32, len), n))
                .collect();
            let mut engine = load(options.clone());
            let expected: Vec<_> = jobs.iter().map(|job| lone(&mut engine, job).tokens).collect();
            drop(engine);
            let serving = serve(options, FOUR);
            let told: Vec<_> = jobs.iter().map(|job| ask(&serving, job.clone()).unwrap()).collect();
            for (i, (told, expected)) in told.into_iter().zip(&expected).enumerate() {
                assert_eq!(&told.answer().tokens, expected, "{arch}, streamed {streamed}, job {i}");
            }
        }
    }
}

fn streaming(options: Options) -> Options {
    let file = terrace_ggml::gguf::read(&options.model).unwrap();
    let ram_budget = terrace_plan::Budget::Bytes(terrace_model::ByteSize::gib(1 << 20));
    let manage = terrace_plan::Manage::Experts;
    let request = terrace_plan::Wishes {
        memory: MemoryOptions { stream: manage, ram_budget, ..MemoryOptions::default() },
        mapping: false,
        ..Default::default()
    };
    let machine = terrace_plan::MachineProfile::unmeasured(
        "m",
        2,
        terrace_model::ByteSize::gib(1 << 20),
        terrace_model::ByteSize::gib(1 << 20),
    );
    let minimum = terrace_plan::plan(&file, &machine, &request).unwrap().minimum;
    let ram_budget = terrace_plan::Budget::Bytes(terrace_model::ByteSize(2 * minimum.bytes()));
    Options { memory: MemoryOptions { stream: manage, ram_budget, ..options.memory }, ..options }
}

#[test]
fn what_a_slot_holds_serves_the_next_job_that_begins_so() {
    for arch in [Arch::Qwen3Moe, Arch::Deepseek2, Arch::Qwen3Next, Arch::Gemma4, Arch::GptOss] {
        let (_dir, model) = tiny(arch);
        let options = Options { model, ..options(false) };
        // The reference: one conversation after the other, each in its own context.
        let mut engine = load(options.clone());
        let talk = |engine: &mut Engine, first: &[i32], second: &[i32]| {
            let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
            let mut session = engine.session();
            let answer =
                engine.generate(&mut session, first, Some(6), &Sampling::greedy(), go_on).unwrap().tokens;
            // The last token was chosen and not evaluated.
            let rest = [&answer[5..], second].concat();
            let next =
                engine.generate(&mut session, &rest, Some(6), &Sampling::greedy(), go_on).unwrap().tokens;
            (answer, next)
        };
        let (first, second) = (noise(1, 64), noise(2, 20));
        let (answer, next) = talk(&mut engine, &first, &second);
        let branch = [&first[..32], &noise(3, 30)].concat();
        let branched = lone(&mut engine, &job(&branch, 6)).tokens;
        let serving = serve(options, FOUR);
        let reusing = |prompt: &[i32]| ask(&serving, Job { reuse: true, ..job(prompt, 6) }).unwrap().answer();
        // Another caller's slot does not interfere.
        assert_eq!(reusing(&noise(9, 40)).reused, 0, "{arch}");
        let begun = reusing(&first);
        assert_eq!((begun.reused, &begun.tokens), (0, &answer), "{arch}");
        // The conversation continues: everything held is reused, with any kind of memory.
        let prompt = [&first[..], &answer, &second].concat();
        let went_on = reusing(&prompt);
        assert_eq!((went_on.reused, &went_on.tokens), (64 + 5, &next), "{arch}");
        assert_eq!((went_on.prompt_tokens, went_on.epochs), (prompt.len(), (0, 0)));
        // Another conversation branches off in the middle of the prompt: memory that cannot be
        // truncated starts over. The graphs are the same either way.
        let cut = reusing(&branch);
        let held = if arch == Arch::Qwen3Next { 0 } else { 32 };
        assert_eq!((cut.reused, &cut.tokens), (held, &branched), "{arch}");
        // The whole prompt is held, and only its last token is evaluated for its logits.
        let again = reusing(&branch);
        let held = if arch == Arch::Qwen3Next { 0 } else { branch.len() - 1 };
        assert_eq!(again.reused, held, "{arch}");
        // Nothing is reused unless the job allows it.
        let alone = ask(&serving, job(&branch, 6)).unwrap().answer();
        assert_eq!((alone.reused, &alone.tokens), (0, &branched), "{arch}");
        let totals = serving.status().totals;
        assert_eq!(totals.reused_tokens, (64 + 5 + cut.reused + again.reused) as u64, "{arch}");
    }
}

/// The pass of a prompt ends with the caller, and the slot holds what it held before.
#[test]
fn a_caller_that_leaves_ends_a_pass_of_its_prompt() {
    for arch in [Arch::Qwen3Moe, Arch::Deepseek2, Arch::Qwen3Next, Arch::Gemma4, Arch::GptOss] {
        let (_dir, model) = tiny(arch);
        let plain = options(false);
        let context = ContextOptions { batch: 512, ubatch: Some(512), ..plain.context };
        let options = Options { model, context, ..plain };
        let mut engine = load(options.clone());
        let first = noise(1, 64);
        let answer = lone(&mut engine, &job(&first, 6)).tokens;
        let conversation = |rest: &[i32]| [&first[..], &answer, rest].concat();
        drop(engine);
        let serving = serve(options, PLAIN);
        let asked = |prompt: &[i32]| ask(&serving, Job { reuse: true, ..job(prompt, 6) }).unwrap();
        assert_eq!(asked(&first).answer().tokens, answer, "{arch}");
        // The bits of a prompt depend on where its pass begins: each time, it is the same place.
        let second = conversation(&noise(2, 20));
        asked(&second).answer();
        asked(&first).answer();
        let next = asked(&second).answer();
        asked(&first).answer();
        let before = serving.status().slots[0].held;
        let mut ended = 0;
        for moment in (0..12).rev() {
            let reply = asked(&conversation(&noise(3 + moment, 400)));
            reply.wait_for_start();
            std::thread::sleep(Duration::from_millis(2) * moment.unsigned_abs());
            drop(reply);
            while !serving.status().is_idle() {
                std::thread::yield_now();
            }
            let held = serving.status().slots[0].held;
            // With windows, what came before a longer prompt may be gone.
            assert!(held <= before || held > before + 400, "{arch}: {held} tokens, {before} before");
            ended += usize::from(held <= before);
        }
        // What is kept as a state cannot be cut back, so that its passes are computed to their ends.
        assert_eq!(ended > 0, arch != Arch::Qwen3Next, "{arch}: {ended} passes");
        let went_on = asked(&second).answer();
        if went_on.reused == next.reused {
            assert_eq!(went_on.tokens, next.tokens, "{arch}");
        }
        if matches!(arch, Arch::Qwen3Moe | Arch::Deepseek2) {
            assert!(went_on.reused >= 64 + 5, "{arch}: {} tokens", went_on.reused);
        }
    }
}

#[test]
fn a_few_common_tokens_do_not_take_a_conversation_away() {
    let serving = serve(options(false), ServingOptions { slots: 2, ..PLAIN });
    let prompt = |seed, len| [&[1, 2, 3][..], &noise(seed, len)].concat();
    let reusing =
        |prompt: &[i32]| ask(&serving, Job { reuse: true, ..job(prompt, 2) }).unwrap().answer().reused;
    assert_eq!(reusing(&prompt(1, 100)), 0);
    // Three tokens of eighty are not worth it: the other slot is used, with nothing to reuse.
    assert_eq!(reusing(&prompt(2, 80)), 0);
    assert_eq!(reusing(&prompt(1, 100)), 102);
    // Now the second slot is the older one, and keeps only the first tokens.
    assert_eq!(reusing(&prompt(3, 80)), 3);
    assert_eq!(reusing(&prompt(1, 100)), 102);
    let held: Vec<usize> = serving.status().slots.iter().map(|slot| slot.held).collect();
    assert_eq!(held, [104, 84]);
}

#[test]
fn a_failed_read_fails_the_job_that_needed_it() {
    let mut engine = load(options(true));
    let jobs: Vec<Job> = (0..4).map(|i| job(&text(&engine, 2000 * i, 10 + 20 * i), 12)).collect();
    let expected: Vec<_> = jobs.iter().map(|job| lone(&mut engine, job).tokens).collect();
    drop(engine);
    let (mut failures, mut whole) = (0, 0);
    for request in (300..3000).step_by(150) {
        let faulty = Options {
            testing: TestingOptions { inject_fault: Some(format!("eio@{request}")), ..options(true).testing },
            ..options(true)
        };
        let sequences =
            Options { context: ContextOptions { sequences: 2, unified: false, ..faulty.context }, ..faulty };
        let Ok(engine) = Engine::load(sequences, &mut |_| ControlFlow::Continue(())) else { continue };
        let serving = Serving::start(engine, ServingOptions { slots: 2, ..PLAIN });
        let told: Vec<_> = jobs.iter().map(|job| ask(&serving, job.clone()).unwrap()).collect();
        let mut failed = 0;
        for (told, expected) in told.into_iter().zip(&expected) {
            match told.all().end {
                Ok(answer) => assert_eq!(&answer.tokens, expected, "request {request}"),
                Err(EngineError::Context(error)) => {
                    assert!(error.to_string().contains("tiny-moe-Q4_K.gguf"), "{error}");
                    failed += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(failed < 2, "one read failed, and {failed} jobs");
        failures += failed;
        whole += usize::from(failed == 0);
        assert_eq!(serving.status().totals.ended.failed, failed);
        // The next job is not affected.
        assert_eq!(ask(&serving, jobs[0].clone()).unwrap().answer().tokens, expected[0]);
    }
    assert!(failures > 3, "{failures} failed, {whole} were not hit by the fault");
}

#[test]
fn what_a_failed_prompt_leaves_behind_is_sound() {
    // Keys and values can be truncated; states cannot, and start over.
    for arch in [Arch::Qwen3Moe, Arch::Qwen3Next] {
        let (_dir, model) = tiny(arch);
        let options = streaming(Options { model, ..options(false) });
        let long = Job { reuse: true, ..job(&noise(4, 200), 6) };
        let expected = lone(&mut load(options.clone()), &long).tokens;
        let mut kept = Vec::new();
        for request in (20..900).step_by(40) {
            let faulty = Options {
                testing: TestingOptions {
                    inject_fault: Some(format!("eio@{request}")),
                    ..options.clone().testing
                },
                ..options.clone()
            };
            let Ok(engine) = Engine::load(faulty, &mut |_| ControlFlow::Continue(())) else { continue };
            let serving = Serving::start(engine, PLAIN);
            if ask(&serving, long.clone()).unwrap().all().end.is_err() {
                let answer = ask(&serving, long.clone()).unwrap().answer();
                assert_eq!(answer.tokens, expected, "{arch}, request {request}, {} reused", answer.reused);
                kept.push(answer.reused);
            }
        }
        assert!(kept.len() > 3, "{arch}: {kept:?}");
        assert_eq!(kept.iter().any(|&reused| reused > 0), arch == Arch::Qwen3Moe, "{arch}: {kept:?}");
    }
}

#[test]
fn a_failed_read_under_a_batch_of_slots_is_tried_again_one_by_one() {
    for request in [600, 900, 1200] {
        let faulty = Options {
            testing: TestingOptions { inject_fault: Some(format!("eio@{request}")), ..options(true).testing },
            ..options(true)
        };
        let serving = serve(faulty, ServingOptions { batch_slots: BatchSlots::On, ..FOUR });
        let prompt = serving.tokenize("The water", true, false, &|| true).unwrap();
        let told: Vec<_> = (0..4).map(|_| ask(&serving, job(&prompt, 60)).unwrap()).collect();
        let answers: Vec<_> = told.into_iter().map(|told| told.all().end).collect();
        // The fault occurs once. If it hit a prompt, only that job failed.
        assert!(answers.iter().filter(|answer| answer.is_err()).count() < 2, "{answers:?}");
        for answer in answers.into_iter().flatten() {
            assert_eq!(answer.tokens.len(), 60);
        }
    }
}

#[test]
fn slots_computed_together_read_experts_once() {
    let prompt = {
        let engine = load(options(true));
        text(&engine, 4000, 12)
    };
    let blocks = |batch_slots| {
        let serving = serve(options(true), ServingOptions { batch_slots, ..FOUR });
        let told: Vec<_> = (0..4).map(|_| ask(&serving, job(&prompt, 40)).unwrap()).collect();
        let answers: Vec<_> = told.into_iter().map(|told| told.answer().tokens).collect();
        let stats = serving.status().store.unwrap();
        (answers, stats.hits + stats.misses + stats.joined)
    };
    let (alone, each) = blocks(BatchSlots::Off);
    let (together, once) = blocks(BatchSlots::Exact);
    assert!(alone.iter().all(|tokens| *tokens == alone[0]), "the same prompts get the same answers");
    assert_eq!(together, alone);
    let (rounded, _) = blocks(BatchSlots::On);
    assert!(rounded.iter().all(|tokens| tokens.len() == 40));
    // The first token comes from the prompt, which is never computed with others.
    assert!(rounded.iter().all(|tokens| tokens[0] == alone[0][0]));
    // The jobs are a token apart and share only some experts.
    assert!(10 * once < 9 * each, "{once} blocks together, {each} one by one");
}

#[test]
fn the_context_of_all_slots_is_counted_before_the_load() {
    let context = |sequences| {
        let engine = load(Options {
            context: ContextOptions { sequences, unified: false, ..options(false).context },
            ..options(false)
        });
        assert_eq!(engine.context_size(), 512, "each slot has a whole context");
        engine.plan().context_bytes.bytes()
    };
    let (one, two, four) = (context(1), context(2), context(4));
    assert_eq!(four - two, 2 * (two - one));
    assert!(two > one);
    let mut engine = load(Options {
        context: ContextOptions { sequences: 4, unified: false, ..options(false).context },
        ..options(false)
    });
    assert!(engine.plan().to_string().contains("4 slots, each context 512"), "{}", engine.plan());
    // Sequences with separate contexts share nothing.
    assert_eq!(Logits::new(&mut engine).sequences(), 1);
    drop(engine);
    // One such context would fit in the address space of a small machine; hundreds fit in none.
    let huge = Options {
        context: ContextOptions {
            sequences: 200,
            unified: false,
            ctx: Some(1 << 22),
            ..options(false).context
        },
        ..options(false)
    };
    let error = Engine::load(huge, &mut |_| ControlFlow::Continue(())).err().unwrap();
    assert!(matches!(error, EngineError::Unfit(Unfit::ContextTooLarge { .. })), "{error}");
}

#[test]
fn a_long_prompt_does_not_keep_others_from_going_on() {
    let engine = load(Options {
        context: ContextOptions { sequences: 2, unified: false, ..options(true).context },
        ..options(true)
    });
    let prompt = text(&engine, 0, 480);
    let serving = Serving::start(engine, ServingOptions { slots: 2, ..PLAIN });
    let log = Arc::new(Mutex::new(String::new()));
    let logged = |job: Job, held: Option<Receiver<()>>| {
        let (send, end) = channel();
        let log = Arc::clone(&log);
        let sink = move |event: Event| {
            match event {
                Event::Started { .. } | Event::Progress { .. } => log.lock().unwrap().push('p'),
                Event::Text(_) => {
                    log.lock().unwrap().push('t');
                    held.as_ref().map(Receiver::recv);
                }
                Event::Token(_) => {}
                _ => send.send(()).unwrap(),
            }
            ControlFlow::Continue(())
        };
        (end, job.submit(&serving, Box::new(sink)).unwrap())
    };
    // Its first token is held up until the other has asked.
    let (go, held) = channel();
    let (first, _ticket) = logged(job(&prompt[..4], 100), Some(held));
    while !log.lock().unwrap().contains('t') {
        std::thread::yield_now();
    }
    log.lock().unwrap().clear();
    let (long, _other) = logged(job(&prompt, 1), None);
    drop(go);
    long.recv().unwrap();
    first.recv().unwrap();
    let log = log.lock().unwrap().clone();
    // 480 tokens are 15 graphs, the last of which ends the job. In the round between two graphs,
    // the other job gets a token.
    assert_eq!(log.matches('p').count(), 15, "{log}");
    assert!(log.matches("pp").count() < 2, "{log}");
    assert!(serving.status().totals.prompt_tokens == 484);
}
