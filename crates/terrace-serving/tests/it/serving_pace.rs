//! Long prompts beside running answers: who gets a turn when, and what is shown meanwhile.

use crate::served::{PLAIN, ask, job, load, lone, options, serve, text};
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use terrace_engine::Engine;
use terrace_ggml::llama::Observer;
use terrace_serving::{Event, Serving, ServingOptions, SlotState};

/// So little time that parts are the least there are.
const SOON: ServingOptions =
    ServingOptions { slots: 2, prefill_latency: Some(Duration::from_nanos(1)), ..PLAIN };

/// What the worker told, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PaceEvent {
    /// The running answer has another token.
    Token,
    /// This much of the prompt is evaluated.
    Part(usize),
    /// The first token after the prompt.
    First,
}

/// Events while a long prompt is evaluated beside an answer that goes on, and the prompt's answer.
fn beside(streamed: bool, serving: ServingOptions) -> (Vec<PaceEvent>, Vec<i32>) {
    let serving = serve(options(streamed), serving);
    let order = Arc::new(Mutex::new(Vec::new()));
    let (begins, begun) = channel();
    let log = Arc::clone(&order);
    let prompt = |text: &str| serving.tokenize(text, true, false, &|| true).unwrap();
    let answering = job(&prompt("In the beginning God created the heaven and the earth. And the earth"), 450);
    let _answering = answering
        .submit(
            &serving,
            Box::new(move |event| {
                if matches!(event, Event::Text(_)) {
                    log.lock().unwrap().push(PaceEvent::Token);
                    let _ = begins.send(());
                }
                ControlFlow::Continue(())
            }),
        )
        .unwrap();
    begun.recv().unwrap();
    let (ends, ended) = channel();
    let log = Arc::clone(&order);
    let mut first = true;
    let sink = move |event| {
        match event {
            Event::Progress { evaluated } => log.lock().unwrap().push(PaceEvent::Part(evaluated)),
            Event::Text(_) if std::mem::take(&mut first) => log.lock().unwrap().push(PaceEvent::First),
            Event::Finished(answer) => ends.send(answer.tokens).unwrap(),
            _ => {}
        }
        ControlFlow::Continue(())
    };
    let long = job(&long(&serving), 4).submit(&serving, Box::new(sink)).unwrap();
    let tokens = ended.recv().unwrap();
    drop(long);
    let order = order.lock().unwrap().clone();
    (order, tokens)
}

/// A prompt of 200 tokens.
fn long(serving: &Serving) -> Vec<i32> {
    let text = std::fs::read_to_string(crate::served::models().join("sample.kjv.txt")).unwrap();
    let mut tokens = serving.tokenize(&text[..2000], true, false, &|| true).unwrap();
    tokens.truncate(200);
    tokens
}

#[test]
fn a_running_answer_has_its_turn_after_each_part_of_a_long_prompt() {
    for streamed in [false, true] {
        let (order, tokens) = beside(streamed, SOON);
        let parts: Vec<usize> = order
            .iter()
            .filter_map(|told| if let PaceEvent::Part(n) = told { Some(*n) } else { None })
            .collect();
        if !streamed {
            assert_eq!(parts, (16..200).step_by(16).collect::<Vec<_>>(), "parts of 16 instead of 32");
        }
        let of = |part| order.iter().position(|told| *told == PaceEvent::Part(part)).unwrap();
        for two in parts.windows(2) {
            let between = &order[of(two[0]) + 1..of(two[1])];
            assert_eq!(between, [PaceEvent::Token], "streamed {streamed}, after {} tokens", two[0]);
        }
        assert!(order.contains(&PaceEvent::First));
        assert_eq!(tokens.len(), 4);
    }
}

#[test]
fn prompts_are_computed_in_whole_graphs_where_nothing_else_is_generated() {
    let mut engine = load(options(false));
    let prompts = [text(&engine, 500, 200), text(&engine, 4000, 90)];
    let expected = prompts.each_ref().map(|prompt| lone(&mut engine, &job(prompt, 12)).tokens);
    let serving =
        Serving::start(load_slots(), ServingOptions { prefill_latency: Some(Duration::ZERO), ..SOON });
    for (prompt, expected) in prompts.iter().zip(&expected) {
        let heard = ask(&serving, job(prompt, 12)).unwrap().all();
        assert_eq!(heard.progress, (32..prompt.len()).step_by(32).collect::<Vec<_>>());
        assert_eq!(&heard.end.unwrap().tokens, expected);
    }
}

fn load_slots() -> Engine {
    let options = options(false);
    let context = terrace_engine::options::ContextOptions { sequences: 2, unified: false, ..options.context };
    load(terrace_engine::Options { context, ..options })
}

/// Stops each graph at its first tensor until it may go on.
struct Stops {
    stopped: Sender<()>,
    go_on: Receiver<()>,
}

impl Observer for Stops {
    fn wants(&mut self, name: &[u8]) -> bool {
        name == b"l_out-0"
    }

    fn computed(&mut self, _: &[u8], _: usize, _: &[f32]) {
        let _ = self.stopped.send(());
        // The other side is gone: nothing stops any more.
        let _ = self.go_on.recv();
    }
}

#[test]
fn a_slot_is_shown_as_taken_during_the_first_graph_of_its_prompt() {
    terrace_testkit::needs_own_process();
    let (stopped, stops) = channel();
    let (go, go_on) = channel();
    let observer = Box::new(Stops { stopped, go_on });
    let engine =
        Engine::load_observed(options(false), Some(observer), &mut |_| ControlFlow::Continue(())).unwrap();
    let prompt = text(&engine, 500, 60);
    let serving = Serving::start(engine, PLAIN);
    let told = ask(&serving, job(&prompt, 1)).unwrap();
    stops.recv().unwrap();
    let status = serving.status();
    let slot = status.slots[0];
    assert_eq!((slot.state, slot.prompt, slot.held), (SlotState::Prefill, 60, 0));
    assert!(!status.is_idle() && status.waiting == 0);
    drop((go, stops));
    assert_eq!(told.answer().tokens.len(), 1);
}
