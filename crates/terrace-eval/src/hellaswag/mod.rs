//! HellaSwag: how often does a model rank the right one of four endings of a text first? Scored as
//! llama.cpp's `perplexity --hellaswag` does (`acc_norm`), by the mean log probability of an
//! ending's tokens.

mod tasks;

pub use tasks::{HellaSwagError, HellaSwagTask};

use crate::error::EvalError;
use crate::stats::log_softmax::LogSum;
use crate::stats::wilson::wilson;
use crate::threads::on_threads;
use serde::Serialize;
use std::ops::ControlFlow;
use std::time::Instant;
use tasks::ENDINGS;
use terrace_engine::{Engine, Logits};
use terrace_ggml::llama::{Batch, Token};

/// The value of [`ContextOptions::sequences`](terrace_engine::options::ContextOptions::sequences)
/// for one task at a time, as llama.cpp's tool evaluates them by default. Each further task to
/// compute together takes four more. A streamed model is then read less often, but ggml rounds
/// differently, which may change tasks on which the model is undecided.
pub const HELLASWAG_SEQUENCES: u32 = 4;

/// Right answers so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Tasks done.
    pub tasks: usize,
    /// Tasks whose right ending was ranked first.
    pub correct: usize,
    /// Their share, 0 to 1.
    pub accuracy: f64,
    /// Lower end of the 95 % confidence interval of the accuracy.
    pub low: f64,
    /// Upper end of that interval.
    pub high: f64,
}

impl Score {
    fn of(correct: usize, tasks: usize) -> Self {
        let accuracy = correct as f64 / tasks as f64;
        let (low, high) = wilson(accuracy, tasks as f64);
        Self { tasks, correct, accuracy, low, high }
    }
}

/// Progress of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct HellaSwagProgress {
    /// The score so far.
    pub score: Score,
    /// Tasks to do.
    pub tasks: usize,
    /// Seconds so far.
    pub seconds: f64,
}

/// A model's answer to a task.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HellaSwagAnswer {
    /// The line of the file at which the task begins, 1-based.
    pub line: usize,
    /// The ending that the model ranks first.
    pub chosen: usize,
    /// The right ending.
    pub gold: usize,
    /// Mean log probability of each ending's tokens.
    pub mean_ln_p: [f64; ENDINGS],
}

/// The result of a HellaSwag measurement.
#[derive(Clone, Debug, Serialize)]
pub struct HellaSwagReport {
    #[serde(flatten)]
    pub score: Score,
    /// Tokens evaluated.
    pub tokens: usize,
    /// Duration in seconds.
    pub seconds: f64,
    /// Tokens evaluated per second.
    pub tokens_per_second: f64,
    /// Task by task, in the order of evaluation.
    pub answers: Vec<HellaSwagAnswer>,
}

/// A task as tokens: the part that its endings share, which is computed once, and the rest of each.
struct Prepared<'a> {
    task: &'a HellaSwagTask,
    texts: [Vec<i32>; ENDINGS],
    shared: usize,
}

impl Prepared<'_> {
    fn tokens(&self) -> usize {
        self.shared + self.texts.iter().map(|text| text.len() - self.shared).sum::<usize>()
    }

    /// Adds the task to a batch, as sequences numbered from `first`. Logits are requested for the
    /// last shared token, and for all tokens of each ending except its last.
    fn add_to(&self, batch: &mut Batch, first: u32) {
        let all = ENDINGS as u32;
        for (position, &token) in (0..).zip(&self.texts[0][..self.shared]) {
            let last = position as usize + 1 == self.shared;
            batch.push(Token(token), position, first..first + all, last);
        }
        for (sequence, text) in (first..).zip(&self.texts) {
            for (position, &token) in text.iter().enumerate().skip(self.shared) {
                let wanted = position + 1 < text.len();
                batch.push(Token(token), position as u32, [sequence], wanted);
            }
        }
    }

    /// Computes the model's answer from the next rows of logits and their sums.
    fn answer<'r>(&self, rows: &mut impl Iterator<Item = (&'r [f32], LogSum)>) -> HellaSwagAnswer {
        let ln_p = |(row, sum): (&[f32], LogSum), token: i32| -sum.nll(row[token.unsigned_abs() as usize]);
        let shared = rows.next().expect("a row for what is shared");
        let mean_ln_p = std::array::from_fn(|ending| {
            let own = &self.texts[ending][self.shared..];
            let first = ln_p(shared, own[0]);
            let rest: f64 = own[1..].iter().map(|&token| ln_p(rows.next().expect("a row each"), token)).sum();
            (first + rest) / own.len() as f64
        });
        // Of equal ones the first.
        let chosen = (1..ENDINGS).fold(0, |best, i| if mean_ln_p[i] > mean_ln_p[best] { i } else { best });
        HellaSwagAnswer { line: self.task.line, chosen, gold: self.task.gold, mean_ln_p }
    }
}

/// Answers tasks, as many at a time as the engine's sequences and batch allow. `progress` is called
/// after each task and may end the measurement. Clears the context.
///
/// # Errors
/// If the engine has fewer than four
/// [sequences](terrace_engine::options::ContextOptions::sequences), or a task does not fit a batch
/// or has endings that share nothing; [`EvalError::Cancelled`]; errors of the context.
pub fn hellaswag(
    engine: &mut Engine,
    tasks: &[HellaSwagTask],
    progress: &mut dyn FnMut(&HellaSwagProgress) -> ControlFlow<()>,
) -> Result<HellaSwagReport, EvalError> {
    let mut logits = Logits::new(engine);
    let at_once = logits.sequences() as usize / ENDINGS;
    if at_once == 0 {
        return Err(EvalError::Sequences { needed: ENDINGS as u32, there: logits.sequences() });
    }
    let room = logits.room();
    let begin = Instant::now();
    let (mut answers, mut correct, mut tokens) = (Vec::with_capacity(tasks.len()), 0, 0);
    let prepared = tasks.iter().map(|task| prepare(&logits, task, room)).collect::<Result<Vec<_>, _>>()?;
    let mut waiting = prepared.as_slice();
    while !waiting.is_empty() {
        let mut sum = 0;
        let fit = waiting.iter().take(at_once).take_while(|task| {
            sum += task.tokens();
            sum <= room
        });
        let group;
        (group, waiting) = waiting.split_at(fit.count());
        tokens += group.iter().map(Prepared::tokens).sum::<usize>();
        for answer in answers_of(&mut logits, group)? {
            correct += usize::from(answer.chosen == answer.gold);
            answers.push(answer);
            let score = Score::of(correct, answers.len());
            let seconds = begin.elapsed().as_secs_f64();
            if progress(&HellaSwagProgress { score, tasks: tasks.len(), seconds }).is_break() {
                return Err(EvalError::Cancelled);
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    Ok(HellaSwagReport {
        score: Score::of(correct, answers.len()),
        tokens,
        seconds,
        tokens_per_second: tokens as f64 / seconds.max(f64::MIN_POSITIVE),
        answers,
    })
}

/// Tokenises a task, and checks that it fits a batch.
fn prepare<'a>(logits: &Logits<'_>, task: &'a HellaSwagTask, room: usize) -> Result<Prepared<'a>, EvalError> {
    let line = task.line;
    let mut texts: [Vec<i32>; ENDINGS] = Default::default();
    for (text, ending) in texts.iter_mut().zip(&task.endings) {
        *text = logits.tokenize(&format!("{} {ending}", task.context), true, false)?;
    }
    // At least one token of each ending is left to score.
    let shortest = texts.iter().map(Vec::len).min().unwrap_or_default();
    let equal = |&i: &usize| texts.iter().all(|text| text[i] == texts[0][i]);
    let shared = (0..shortest.saturating_sub(1)).take_while(equal).count();
    if shared == 0 {
        return Err(EvalError::TaskWithoutContext { line });
    }
    let prepared = Prepared { task, texts, shared };
    match prepared.tokens() {
        tokens if tokens > room => Err(EvalError::TaskTooLong { line, tokens, room }),
        _ => Ok(prepared),
    }
}

/// Answers tasks that fit one batch together.
fn answers_of(logits: &mut Logits<'_>, group: &[Prepared<'_>]) -> Result<Vec<HellaSwagAnswer>, EvalError> {
    let mut batch = Batch::default();
    for (task, first) in group.iter().zip((0..).step_by(ENDINGS)) {
        task.add_to(&mut batch, first);
    }
    let (vocab, threads) = (logits.vocab(), logits.threads());
    let outputs = batch.outputs();
    logits.of_batch(&mut batch, |rows| {
        let mut sums = vec![LogSum::default(); outputs];
        let jobs = sums.iter_mut().zip(rows.chunks_exact(vocab)).collect();
        on_threads(threads, jobs, |(sum, row)| *sum = LogSum::of(row));
        let mut rows = rows.chunks_exact(vocab).zip(sums);
        let answers = group.iter().map(|task| match task.answer(&mut rows) {
            answer if answer.mean_ln_p.iter().any(|p| p.is_nan()) => {
                Err(EvalError::NoNumbers(format!("the task at line {}", answer.line)))
            }
            answer => Ok(answer),
        });
        answers.collect()
    })
}
