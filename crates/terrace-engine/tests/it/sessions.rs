//! What sessions hold of a context.

use crate::reloading::{dir, load, options};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use terrace_engine::{Engine, StopReason};
use terrace_ggml::llama::Sampling;
use terrace_plan::Manage;
use terrace_testkit::{Arch, Spec};

/// A context that was emptied holds nothing of a session, although tokens can be removed from it.
#[test]
fn an_emptied_context_holds_nothing() {
    terrace_testkit::needs_own_process();
    let dir = dir();
    for arch in [Arch::Qwen3Moe, Arch::Qwen3Next] {
        let model = terrace_testkit::write(&Spec::new(arch), dir.path().join("model.gguf")).unwrap();
        let mut engine = load(options(&model, Manage::Experts));
        let mut session = engine.session();
        let keep_going = &mut |_: &[u8]| ControlFlow::Continue(());
        engine.generate(&mut session, &[5, 6, 7, 8], Some(1), &Sampling::greedy(), keep_going).unwrap();
        assert_eq!(session.cut(engine.context(), 4), 4, "{arch}");
        engine.context().clear();
        assert_eq!(session.cut(engine.context(), 4), 0, "{arch}");
    }
}

/// The bits of the logits behind the tokens; `None` if the evaluation was stopped.
fn logits_behind(engine: &mut Engine, tokens: &[i32]) -> Option<Vec<u32>> {
    let mut session = engine.session();
    let keep_going = &mut |_: &[u8]| ControlFlow::Continue(());
    let answer = engine.generate(&mut session, tokens, Some(0), &Sampling::greedy(), keep_going).unwrap();
    let is_whole = answer.stop != StopReason::Cancelled;
    is_whole.then(|| engine.logits().unwrap().iter().map(|logit| logit.to_bits()).collect())
}

/// At whatever task of an expert: what is left out there is never taken for computed.
#[test]
fn a_prompt_that_is_stopped_leaves_nothing_behind() {
    const MOMENTS: u32 = 64;
    terrace_testkit::needs_own_process();
    let dir = dir();
    let model = terrace_testkit::write(&Spec::new(Arch::Qwen3Moe), dir.path().join("model.gguf")).unwrap();
    let mut engine = load(options(&model, Manage::Experts));
    let room = i32::try_from(engine.context_size()).unwrap();
    let tokens: Vec<i32> = (0..room - 8).map(|i| 5 + i * 7 % 250).collect();
    let golden = logits_behind(&mut engine, &tokens).unwrap();
    let began = Instant::now();
    assert!(logits_behind(&mut engine, &tokens).unwrap() == golden);
    let whole = began.elapsed();
    let mut stopped = 0;
    for moment in 0..MOMENTS {
        let flag = engine.interrupt_flag();
        let after = whole * moment / MOMENTS;
        let stop = std::thread::spawn(move || {
            std::thread::sleep(after);
            flag.store(true, Ordering::Relaxed);
            // Whoever has asked may take it back at once: a run that has heeded it stays stopped.
            std::thread::sleep(Duration::from_micros(u64::from(moment) % 8 * 20));
            flag.store(moment % 2 == 0, Ordering::Relaxed);
        });
        match logits_behind(&mut engine, &tokens) {
            Some(logits) => assert!(logits == golden, "{after:?} of {whole:?}"),
            None => stopped += 1,
        }
        stop.join().unwrap();
        engine.interrupt_flag().store(false, Ordering::Relaxed);
    }
    assert!(stopped > 0, "it was too fast each time");
    assert!(logits_behind(&mut engine, &tokens).unwrap() == golden);
}
