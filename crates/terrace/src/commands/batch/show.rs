//! Progress of a batch, on stderr.

use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use terrace_cli::term::progress::target;
use terrace_cli::term::say;
use terrace_server::batch::Progress;

/// Interval of lines where stderr is no terminal, at first and at last.
const FIRST: Duration = Duration::from_secs(10);
const LAST: Duration = Duration::from_secs(60);

/// Shows how far a batch is: in one line of a terminal, or in a line now and then.
pub struct Display {
    bar: Option<ProgressBar>,
    next: Instant,
    interval: Duration,
}

impl Display {
    pub fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{wide_bar} {msg}").expect("a constant template");
            ProgressBar::with_draw_target(None, target()).with_style(style)
        });
        Self { bar, next: Instant::now() + FIRST, interval: FIRST }
    }

    /// Shows it, if it is time to.
    pub fn show(&mut self, progress: &Progress) {
        if let Some(bar) = &self.bar {
            bar.set_length(progress.requests as u64);
            bar.set_position(progress.done as u64);
            bar.set_message(line(progress));
        } else if Instant::now() >= self.next {
            say!("{}", line(progress));
            self.next += self.interval;
            self.interval = (2 * self.interval).min(LAST);
        }
    }

    /// Takes the line away.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// `120 of 500 done, 2 failed, 41.2 tokens/s, 0.6 GB read per 1,000 tokens, 12 min left`.
pub fn line(progress: &Progress) -> String {
    let mut line = format!("{} of {} done", progress.done, progress.requests);
    if progress.failed > 0 {
        let _ = write!(line, ", {} failed", progress.failed);
    }
    if progress.tokens > 0 {
        let _ = write!(line, ", {:.1} tokens/s", progress.rate());
    }
    if let Some(bytes) = progress.read_per_thousand() {
        let _ = write!(line, ", {:.2} GB read per 1,000 tokens", bytes / 1e9);
    }
    if let Some(left) = progress.left().filter(|_| progress.done < progress.requests) {
        let _ = write!(line, ", {} left", duration(left));
    }
    line
}

/// A time in its two largest units.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) if minutes < 10 => format!("{minutes} min {seconds} s"),
        (0, minutes, _) => format!("{minutes} min"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_how_fast_and_how_long() {
        let progress = Progress {
            requests: 500,
            done: 120,
            failed: 2,
            before: 20,
            tokens: 10_000,
            read: Some(6_000_000_000),
            time: Duration::from_secs(100),
            ..Progress::default()
        };
        assert_eq!(
            line(&progress),
            "120 of 500 done, 2 failed, 100.0 tokens/s, 0.60 GB read per 1,000 tokens, 6 min 20 s left"
        );
        assert_eq!(line(&Progress { requests: 3, ..Progress::default() }), "0 of 3 done");
        for (seconds, text) in [(59, "59 s"), (3599, "59 min"), (36_120, "10 h 2 min")] {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
    }
}
