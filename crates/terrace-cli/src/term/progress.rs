//! Signs of work in progress, on stderr.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Work that takes less shows nothing.
pub const QUIET: Duration = Duration::from_secs(1);
/// Time between two updates.
pub const TICK: Duration = Duration::from_millis(250);

/// Shown while a plan waits for measurements of a machine that was not measured before.
pub const MEASURING: &str = "measuring this machine";

/// Stderr if it is a terminal; otherwise nothing is drawn.
pub fn target() -> ProgressDrawTarget {
    if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
}

/// Does work, and shows a text meanwhile if it takes more than a second.
pub fn patiently<T>(text: &'static str, work: impl FnOnce() -> T) -> T {
    let bar = waiting(text);
    let done = work();
    bar.finish_and_clear();
    done
}

/// A bar that shows nothing for a second, and then a text.
pub fn waiting(text: &'static str) -> ProgressBar {
    let begun = Instant::now();
    let shown = move |_: &ProgressState, out: &mut dyn Write| {
        if begun.elapsed() >= QUIET {
            let _ = out.write_str(text);
        }
    };
    let style = ProgressStyle::with_template("{text}").expect("a constant template");
    let bar = ProgressBar::with_draw_target(None, target()).with_style(style.with_key("text", shown));
    bar.enable_steady_tick(TICK);
    bar
}
