//! Learn files that callers gave, and what is shown of the experts.

use super::Worker;
use crate::apply::Apply;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use terrace_engine::ApplyError;
use terrace_model::learn::Reported;

/// Time between two looks at the experts while callers watch, and while they do not.
const WATCHED: Duration = Duration::from_millis(100);
const UNWATCHED: Duration = Duration::from_secs(1);

/// The state of the experts that the worker last published.
pub struct Shown {
    at: Instant,
    /// True if something has changed since then.
    pub stale: bool,
    /// True if experts are exchanged between tokens.
    exchanges: bool,
}

impl Default for Shown {
    fn default() -> Self {
        Self { at: Instant::now(), stale: false, exchanges: true }
    }
}

impl Worker {
    /// Applies the learn files that callers gave, in their order, and has exchanges follow what is
    /// reported: nothing is exchanged where nothing is to be reported.
    pub(super) fn apply(&mut self) {
        let exchanges = self.live.mode() != Reported::Off;
        if exchanges != self.shown.exchanges {
            self.shown.exchanges = exchanges;
            self.engine.exchange_between_tokens(exchanges);
        }
        while let Some(Apply { file, done }) = self.queue.take_apply() {
            let queue = &self.queue;
            let go_on =
                &mut || if queue.is_stopping() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            let outcome = self.engine.apply_learned(&file, go_on);
            // Whoever stops the worker tells its callers.
            if matches!(outcome, Err(ApplyError::Ended)) {
                return;
            }
            self.shown.stale = true;
            self.look(true);
            self.show();
            done(outcome);
        }
    }

    /// Shows the experts if that is due: between graphs from time to time, and at once before a
    /// pause.
    pub(super) fn look(&mut self, pause: bool) {
        if !self.shown.stale {
            return;
        }
        let since = self.shown.at.elapsed();
        if pause || since >= UNWATCHED || since >= WATCHED && self.live.was_watched() {
            self.live.show(self.engine.see_experts());
            (self.shown.at, self.shown.stale) = (Instant::now(), false);
        }
    }
}
