//! Shows how much of a prompt is evaluated.

use super::progress::{self, QUIET, TICK};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use terrace_engine::{Engine, PromptProgress};

/// Shows the evaluation of the engine's prompts from now on, where stderr is a terminal.
pub fn show(engine: &mut Engine) {
    if progress::target().is_hidden() {
        return;
    }
    let estimate =
        engine.plan().placement.as_ref().and_then(|plan| plan.given.as_ref().or(plan.estimate.as_ref()));
    let expected = estimate.map(|estimate| estimate.prefill_tok_s).filter(|rate| *rate > 0.0);
    let mut shown: Option<(ProgressBar, Arc<Mutex<Evaluation>>)> = None;
    engine.observe_prompts(move |progress| match &shown {
        _ if progress.is_over() => {
            if let Some((bar, _)) = shown.take() {
                bar.finish_and_clear();
            }
        }
        Some((_, evaluation)) if progress.done > 0 => locked(evaluation).advance(progress),
        _ => {
            let evaluation = Arc::new(Mutex::new(Evaluation::new(progress, expected)));
            shown = Some((bar(&evaluation), evaluation));
        }
    });
}

fn bar(evaluation: &Arc<Mutex<Evaluation>>) -> ProgressBar {
    let evaluation = Arc::clone(evaluation);
    let text = move |_: &ProgressState, out: &mut dyn Write| {
        let _ = out.write_str(&locked(&evaluation).text(Instant::now()));
    };
    let style = ProgressStyle::with_template("{prompt}").expect("a constant template");
    let bar =
        ProgressBar::with_draw_target(None, progress::target()).with_style(style.with_key("prompt", text));
    bar.enable_steady_tick(TICK);
    bar
}

fn locked(evaluation: &Mutex<Evaluation>) -> std::sync::MutexGuard<'_, Evaluation> {
    evaluation.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A prompt that is evaluated. A pass takes up to thousands of tokens, so the position within a pass is
/// estimated from the rate so far, and in the first pass from the plan's.
struct Evaluation {
    total: usize,
    begun: Instant,
    done: usize,
    /// When they were done.
    at: Instant,
    /// Tokens per second before the first pass has ended; `None`: unknown.
    expected: Option<f64>,
}

impl Evaluation {
    fn new(progress: PromptProgress, expected: Option<f64>) -> Self {
        let now = Instant::now();
        Self { total: progress.total, begun: now, done: progress.done, at: now, expected }
    }

    fn advance(&mut self, progress: PromptProgress) {
        (self.done, self.at) = (progress.done, Instant::now());
    }

    fn text(&self, now: Instant) -> String {
        let elapsed = now.saturating_duration_since(self.begun);
        if elapsed < QUIET {
            return String::new();
        }
        let Self { total, done, .. } = *self;
        let measured = (done > 0).then(|| done as f64 / (self.at - self.begun).as_secs_f64());
        let Some(rate) = measured.or(self.expected) else {
            return format!("prompt {done}/{total} tokens");
        };
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        let position = (done as f64 + rate * since).min(total as f64 - 1.0);
        let left = ((total as f64 - position) / rate).ceil();
        format!("prompt {position:.0}/{total} tokens, {left:.0} s left")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_long_prompt_shows_what_is_left() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let expected = Some(50.0);
        let mut evaluation = Evaluation { total: 1300, begun, done: 0, at: begun, expected };
        assert_eq!(evaluation.text(begun), "", "short prompts show nothing");
        assert_eq!(evaluation.text(after(2)), "prompt 100/1300 tokens, 24 s left", "by the plan");
        (evaluation.done, evaluation.at) = (320, after(8));
        assert_eq!(evaluation.text(after(8)), "prompt 320/1300 tokens, 25 s left", "by what was measured");
        assert_eq!(evaluation.text(after(9)), "prompt 360/1300 tokens, 24 s left");
        assert_eq!(evaluation.text(after(500)), "prompt 1299/1300 tokens, 1 s left", "slower than expected");
        let unknown = Evaluation { total: 1300, begun, done: 0, at: begun, expected: None };
        assert_eq!(unknown.text(after(2)), "prompt 0/1300 tokens");
    }
}
