//! Requests for reloads, and the listener for their outcomes.

use super::error::ReloadError;
use super::replacement::Take;
use super::report::ReloadReport;
use crate::options::OnReload;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The outcome of a requested reload, which all that requested it share.
pub type ReloadOutcome = Result<ReloadReport, Arc<ReloadError>>;

type Listener = Box<dyn FnMut(&ReloadOutcome) + Send>;

/// Waits between tries while a file is being written, about 3 s in total.
const WAITS: [Duration; 6] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(800),
    Duration::from_millis(1600),
];

/// The tries of one reload: the first one at once, the others after growing waits.
pub struct Tries {
    pub begin: Instant,
    /// When the next try is due.
    pub next: Instant,
    waits: std::slice::Iter<'static, Duration>,
}

impl Tries {
    pub fn new() -> Self {
        let now = Instant::now();
        Self { begin: now, next: now, waits: WAITS.iter() }
    }

    /// Plans another try. Returns false if there were enough.
    pub fn again(&mut self) -> bool {
        let wait = self.waits.next();
        self.next = Instant::now() + wait.copied().unwrap_or_default();
        wait.is_some()
    }

    /// Time until the next try.
    pub fn wait(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }
}

/// A requested reload.
pub struct Pending {
    pub tries: Tries,
    /// True if the listener gets the outcome, because the flag was set.
    pub heard: bool,
    /// Consequence of refused tensors for the others: nothing only if all that requested it agree.
    pub take: Take,
}

/// Pending requests, and the listener for their outcomes.
pub struct Reloads {
    /// Treatment of the context.
    pub then: OnReload,
    /// True if files may be written to while weights stream from them.
    pub expected: bool,
    /// Set to request a reload.
    pub request: Arc<AtomicBool>,
    pub listener: Option<Listener>,
    /// The requested reload that has not ended yet. Requests made meanwhile join it.
    pub pending: Option<Pending>,
    /// Number of computations in a row that met the end of a file.
    pub cut_short: u32,
    /// When tensors were last replaced, the epoch since then, and their number.
    pub last: Option<(Instant, u64, usize)>,
}

impl Reloads {
    pub fn new(then: OnReload, expected: bool) -> Self {
        let request = Arc::default();
        Self { then, expected, request, listener: None, pending: None, cut_short: 0, last: None }
    }
}
