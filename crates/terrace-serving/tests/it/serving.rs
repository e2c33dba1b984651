//! One worker, several callers: each receives what it would receive alone.

use crate::served::{Job, PLAIN, ask, job, load, lone, options, serve, text, to_flow};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;
use terrace_engine::{Engine, StopReason};
use terrace_ggml::llama::Sampling;
use terrace_serving::{Event, Refused, Serving, ServingOptions, SlotState};

fn seeded(seed: u64) -> Sampling {
    Sampling { seed, ..Sampling::default() }
}

/// Prompts of different lengths, with and without greedy sampling.
fn jobs(engine: &Engine) -> Vec<Job> {
    let lengths = [5, 200, 33, 90, 1, 64, 17, 150];
    let job = |(i, len): (usize, usize)| {
        let sampling = if i % 2 == 0 { Sampling::greedy() } else { seeded(i as u64) };
        Job { sampling, ..job(&text(engine, 1000 * i, len), 6 + 5 * (i % 4)) }
    };
    lengths.into_iter().enumerate().map(job).collect()
}

fn bits(engine: &mut Engine) -> Vec<u32> {
    engine.logits().unwrap().iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn slots_answer_as_if_they_were_alone() {
    for streamed in [false, true] {
        let mut engine = load(options(streamed));
        let jobs = jobs(&engine);
        let expected: Vec<_> = jobs.iter().map(|job| lone(&mut engine, job)).collect();
        let longest = job(&text(&engine, 9000, 40), 40);
        let end = lone(&mut engine, &longest);
        let end_logits = bits(&mut engine);
        drop(engine);
        for slots in [1, 4] {
            let serving = serve(options(streamed), ServingOptions { slots, ..PLAIN });
            assert_eq!((serving.facts().slots, serving.facts().context), (slots as usize, 512));
            // The longest starts with the others and ends last.
            let last = ask(&serving, longest.clone()).unwrap();
            let told: Vec<_> = jobs.iter().map(|job| ask(&serving, job.clone()).unwrap()).collect();
            for ((told, expected), job) in told.into_iter().zip(&expected).zip(&jobs) {
                let heard = told.all();
                let answer = heard.end.unwrap();
                assert_eq!(answer.tokens, expected.tokens, "streamed {streamed}, {slots} slots");
                assert_eq!((&heard.text, &heard.tokens), (&expected.text, &expected.tokens));
                assert_eq!((answer.stop, answer.epochs), (expected.stop, (0, 0)));
                assert_eq!((heard.started, answer.reused), (Some((0, 0)), 0));
                let batches: Vec<usize> = (32..job.prompt.len()).step_by(32).collect();
                assert_eq!(heard.progress, batches, "graphs as `generate` cuts them");
            }
            assert_eq!(last.answer().tokens, end.tokens);
            let status = serving.status();
            assert!(status.is_idle());
            assert_eq!(status.totals.ended.length, 9);
            let generated: usize = expected.iter().chain([&end]).map(|answer| answer.tokens.len()).sum();
            assert_eq!(status.totals.generated_tokens, generated as u64);
            let mut engine = serving.stop();
            if slots > 1 {
                continue;
            }
            // With one slot, the engine works as before.
            assert_eq!(lone(&mut engine, &jobs[1]).tokens, expected[1].tokens);
            assert_eq!(lone(&mut engine, &longest).tokens, end.tokens);
            assert_eq!(bits(&mut engine), end_logits);
        }
        // The bits are equal even after 39 rounds with three other jobs.
        let serving = serve(options(streamed), ServingOptions { slots: 4, ..PLAIN });
        let told = ask(&serving, longest.clone()).unwrap();
        let others: Vec<_> = jobs[..3].iter().map(|job| ask(&serving, job.clone()).unwrap()).collect();
        assert_eq!(told.answer().tokens, end.tokens);
        others.into_iter().for_each(|told| drop(told.all()));
        assert_eq!(bits(&mut serving.stop()), end_logits, "streamed {streamed}");
    }
}

#[test]
fn stop_strings_end_an_answer_and_are_not_part_of_it() {
    let mut engine = load(options(false));
    let prompt = text(&engine, 3000, 30);
    let whole = lone(&mut engine, &job(&prompt, 40));
    let text = String::from_utf8_lossy(&whole.text).into_owned();
    // Strings from the middle of the answer, across tokens, and some that almost occur.
    let at = text.char_indices().nth(40).unwrap().0;
    let middle: String = text[at..].chars().take(9).collect();
    let serving = Serving::start(engine, PLAIN);
    let stop = vec![middle.clone() + "~", middle.clone(), String::new()];
    let heard = ask(&serving, Job { stop, ..job(&prompt, 40) }).unwrap().all();
    let answer = heard.end.unwrap();
    assert_eq!(heard.text, text.as_bytes()[..text.find(&middle).unwrap()]);
    assert_eq!((answer.stop, answer.stop_string), (StopReason::StopString, Some(middle)));
    assert!(whole.tokens.starts_with(&answer.tokens));
    // Text that was held back is delivered at the end.
    let begin: String = text.chars().rev().take(4).collect::<Vec<_>>().into_iter().rev().collect();
    let heard = ask(&serving, Job { stop: vec![begin + "~"], ..job(&prompt, 40) }).unwrap().all();
    assert_eq!(heard.text, whole.text);
    assert_eq!(heard.end.unwrap().stop, StopReason::Length);
    assert_eq!(serving.status().totals.ended.stop_string, 1);
}

#[test]
fn jobs_that_cannot_be_taken_are_refused() {
    let serving = Serving::start(load(options(false)), ServingOptions { queue: 2, ..PLAIN });
    let refused = |prompt: &[i32]| ask(&serving, job(prompt, 1)).err().unwrap();
    assert_eq!(refused(&[]), Refused::EmptyPrompt);
    assert_eq!(refused(&[1; 513]), Refused::TooLong { prompt: 513, context: 512 });
    let vocabulary = serving.facts().vocabulary;
    let beyond = i32::try_from(vocabulary).unwrap();
    assert_eq!(refused(&[1, beyond]), Refused::UnknownToken { token: beyond, vocabulary });
    assert_eq!(refused(&[-1]), Refused::UnknownToken { token: -1, vocabulary });
    assert!(serving.detokenize(&[-1, beyond]).unwrap().is_empty());
    let tokens = serving.tokenize("In the beginning", false, false, &|| true).unwrap();
    assert_eq!(serving.detokenize(&tokens).unwrap(), b"In the beginning");

    // One is being answered and held up by its caller; two wait.
    let (go, wait) = channel::<()>();
    let (send, first) = channel();
    let sink = move |event| {
        if matches!(event, Event::Text(_)) {
            let _ = wait.recv();
        }
        to_flow(send.send(event).is_ok())
    };
    let _ticket = job(&tokens, 5).submit(&serving, Box::new(sink)).unwrap();
    assert!(matches!(first.recv().unwrap(), Event::Started { .. }));
    let waiting: Vec<_> = (0..2).map(|_| ask(&serving, job(&tokens, 5)).unwrap()).collect();
    assert_eq!(refused(&tokens), Refused::Full { waiting: 2 });
    assert_eq!(serving.status().waiting, 2);
    drop(go);
    let tokens_of: Vec<_> = waiting.into_iter().map(|told| told.answer().tokens).collect();
    assert_eq!(tokens_of[0], tokens_of[1]);
    assert_eq!(tokens_of[0].len(), 5);
    // There is room again.
    assert_eq!(ask(&serving, job(&tokens, 5)).unwrap().answer().tokens, tokens_of[0]);
}

#[test]
fn a_caller_that_is_gone_ends_its_job_and_no_other() {
    let mut engine = load(options(false));
    let jobs = jobs(&engine);
    let expected: Vec<_> = jobs[..4].iter().map(|job| lone(&mut engine, job)).collect();
    drop(engine);
    let serving = serve(options(false), ServingOptions { slots: 4, ..PLAIN });
    // One leaves when it starts, one in the middle of its prompt, one after the third token.
    let calls = Arc::new(AtomicUsize::new(0));
    let leaving = |at: fn(&Event, usize) -> bool| {
        let (calls, mut texts) = (Arc::clone(&calls), 0);
        let sink = move |event: Event| {
            texts += usize::from(matches!(event, Event::Text(_)));
            let gone = at(&event, texts);
            calls.fetch_add(usize::from(gone), Ordering::SeqCst);
            to_flow(!gone)
        };
        Job { n_max: Some(300), ..jobs[1].clone() }.submit(&serving, Box::new(sink)).unwrap()
    };
    let _tickets = [
        leaving(|event, _| matches!(event, Event::Started { .. })),
        leaving(|event, _| matches!(event, Event::Progress { evaluated: 96 })),
        leaving(|_, texts| texts == 3),
    ];
    let told: Vec<_> = jobs[..4].iter().map(|job| ask(&serving, job.clone()).unwrap()).collect();
    for (told, expected) in told.into_iter().zip(expected) {
        assert_eq!(told.answer().tokens, expected.tokens);
    }
    // No caller is called again after it has left.
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    let totals = serving.status().totals;
    assert_eq!((totals.ended.cancelled, totals.ended.length), (3, 4));
}

#[test]
fn stopping_ends_all_jobs_as_cancelled() {
    let serving = serve(options(true), ServingOptions { slots: 2, ..PLAIN });
    let prompt = serving
        .tokenize("The water goes down from one terrace to the next, ", true, false, &|| true)
        .unwrap();
    let told: Vec<_> = (0..5).map(|_| ask(&serving, job(&prompt, 400)).unwrap()).collect();
    while !serving.status().slots.iter().all(|slot| slot.state == SlotState::Decode && slot.generated > 2) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut engine = serving.stop();
    for (i, told) in told.into_iter().enumerate() {
        let answer = told.answer();
        assert_eq!(answer.stop, StopReason::Cancelled);
        assert_eq!(answer.tokens.len() > 2, i < 2, "two had slots");
    }
    assert_eq!(lone(&mut engine, &job(&prompt, 3)).tokens.len(), 3);
}

/// Two conversations with one model: each continues where it was, whatever the other has left in
/// the context.
#[test]
fn sessions_take_turns() {
    let mut engine = load(options(true));
    let parts: Vec<Vec<i32>> = (0..4).map(|i| text(&engine, 1500 * i, 40 + 10 * i)).collect();
    let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
    let greedy = Sampling::greedy();
    let mut sessions = [engine.session(), engine.session()];
    for (turn, part) in parts.iter().enumerate() {
        let session = &mut sessions[turn % 2];
        let history = [session.tokens(), part].concat();
        let answer = engine.generate(session, part, Some(8), &greedy, go_on).unwrap();
        assert_eq!(session.len(), history.len() + 7, "the last token was chosen, not evaluated");
        // The answer that a single conversation with this history would get.
        assert_eq!(lone(&mut engine, &job(&history, 8)).tokens, answer.tokens, "turn {turn}");
    }
}
