//! Tasks answered in batches, compared with each ending evaluated alone, one token at a time.

use crate::bundled;
use crate::bundled::models;
use std::ops::ControlFlow;
use terrace_engine::options::{ContextOptions, MemoryOptions};
use terrace_engine::{Engine, Options};
use terrace_eval::{EvalError, HELLASWAG_SEQUENCES, HellaSwagReport, HellaSwagTask, hellaswag};
use terrace_ggml::llama::Sampling;
use terrace_model::ByteSize;
use terrace_plan::{Budget, Manage};

/// ggml uses different kernels for different numbers of tokens, and in a close decision of a router
/// their rounding selects another expert. Wrong endings are further from right ones by an order of
/// magnitude.
const CLOSE: f64 = 0.15;

fn load(sequences: u32, streamed: bool) -> Engine {
    bundled::load(Options {
        context: ContextOptions { sequences, outputs: 512, ctx: Some(512), ..ContextOptions::default() },
        memory: MemoryOptions {
            stream: if streamed { Manage::Experts } else { Manage::Auto },
            ram_budget: if streamed { Budget::Bytes(ByteSize::mib(4)) } else { Budget::Auto },
            ..MemoryOptions::default()
        },
        ..Options::default()
    })
}

/// Verses cut in two, with the ends of other verses as wrong endings.
fn tasks(count: usize) -> Vec<HellaSwagTask> {
    let text = std::fs::read_to_string(models().join("sample.kjv.txt")).unwrap();
    let verses: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|words| words.len() > 14)
        .collect();
    let half = |i: usize| {
        let (begin, end) = verses[i].split_at(verses[i].len() / 2);
        (begin.join(" "), end.join(" "))
    };
    let file: Vec<String> = (0..count)
        .map(|i| {
            let endings: Vec<String> =
                (0..4).map(|e| half(if e == i % 4 { i } else { 100 + 7 * i + e }).1).collect();
            format!("{}\n{}\n{}\n", half(i).0, i % 4, endings.join("\n"))
        })
        .collect();
    HellaSwagTask::parse(&file.concat()).unwrap()
}

fn answer(engine: &mut Engine, tasks: &[HellaSwagTask]) -> HellaSwagReport {
    let mut told = 0;
    let report = hellaswag(engine, tasks, &mut |progress| {
        told += 1;
        assert_eq!((progress.score.tasks, progress.tasks), (told, tasks.len()));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!((told, report.answers.len()), (tasks.len(), tasks.len()));
    report
}

/// Mean log probability of the tokens of a text from `shared` on, each from a text that ends before
/// it.
fn by_definition(engine: &mut Engine, text: &[i32], shared: usize) -> f64 {
    let ln_p = (shared..text.len()).map(|end| {
        let mut session = engine.session();
        let go_on = &mut |_: &[u8]| ControlFlow::Continue(());
        engine.generate(&mut session, &text[..end], Some(0), &Sampling::greedy(), go_on).unwrap();
        let logits = engine.logits().unwrap();
        let sum: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
        (f64::from(logits[usize::try_from(text[end]).unwrap()]).exp() / sum).ln()
    });
    ln_p.sum::<f64>() / (text.len() - shared) as f64
}

#[test]
fn batched_streamed_and_by_definition() {
    let tasks = tasks(14);
    let mut engine = load(16, false);
    let report = answer(&mut engine, &tasks);
    for (task, answer) in tasks.iter().zip(&report.answers).take(3) {
        let texts: Vec<Vec<i32>> = task
            .endings
            .iter()
            .map(|ending| engine.tokenize(&format!("{} {ending}", task.context), true, false).unwrap())
            .collect();
        let shared = (0..).take_while(|&i| texts.iter().all(|text| text[i] == texts[0][i])).count();
        assert!(shared > 3, "{shared}");
        for (text, ln_p) in texts.iter().zip(answer.mean_ln_p) {
            let alone = by_definition(&mut engine, text, shared);
            assert!((ln_p - alone).abs() < CLOSE, "{ln_p} and {alone}");
        }
    }
    for (task, answer) in tasks.iter().zip(&report.answers) {
        assert_eq!((answer.line, answer.gold), (task.line, task.gold));
        let best = answer.mean_ln_p.iter().copied().fold(f64::MIN, f64::max);
        assert_eq!(answer.mean_ln_p[answer.chosen], best);
    }
    let right = report.answers.iter().filter(|answer| answer.chosen == answer.gold).count();
    assert_eq!((report.score.correct, report.score.tasks), (right, 14));
    assert!(right >= 7, "a trained model does better than guessing: {right} of 14");
    assert!(report.score.low < report.score.accuracy && report.score.accuracy < report.score.high);

    // One at a time, and with few slots: other graphs and other bytes, but the same answers up to
    // rounding.
    for (sequences, streamed) in [(HELLASWAG_SEQUENCES, false), (16, true)] {
        let other = answer(&mut load(sequences, streamed), &tasks);
        for (a, b) in report.answers.iter().zip(&other.answers) {
            for (a, b) in a.mean_ln_p.iter().zip(b.mean_ln_p) {
                assert!((a - b).abs() < CLOSE, "{a} and {b}");
            }
        }
    }

    refusals(&mut engine, &tasks[0]);
}

fn refusals(engine: &mut Engine, task: &HellaSwagTask) {
    let mut attempt = |task: HellaSwagTask| {
        hellaswag(engine, &[task], &mut |_| ControlFlow::Continue(())).map(|_| ()).unwrap_err()
    };
    let long = HellaSwagTask { context: task.context.repeat(100), line: 7, ..task.clone() };
    let error = attempt(long);
    assert!(matches!(error, EvalError::TaskTooLong { line: 7, room: 512, .. }), "{error}");
    let endings = ["a", "bb", "c", "d"].map(String::from);
    // Endings that have nothing in common except the token at the beginning of a document, if the
    // model has one.
    let bare = HellaSwagTask { context: String::new(), endings, line: 1, gold: 0 };
    if let Err(error) = hellaswag(engine, &[bare], &mut |_| ControlFlow::Continue(())) {
        assert!(matches!(error, EvalError::TaskWithoutContext { line: 1 }), "{error}");
    }
    let mut one = load(1, false);
    let error =
        hellaswag(&mut one, std::slice::from_ref(task), &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(error, EvalError::Sequences { needed: 4, there: 1 }), "{error}");
    let stopped = hellaswag(engine, std::slice::from_ref(task), &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(EvalError::Cancelled)));
    // Endings share a context, but these sequences do not.
    let mut slots = bundled::load(Options {
        context: ContextOptions { sequences: 4, unified: false, ctx: Some(512), ..ContextOptions::default() },
        ..Options::default()
    });
    let error = hellaswag(&mut slots, &[], &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(error, EvalError::Sequences { needed: 4, there: 1 }), "{error}");
}
