//! What callers leave for the worker, and what it lets them see. Nobody waits for a computation here.

use super::job::{Job, Refused, Sink};
use super::status::ServingStatus;
use crate::reload::ReloadOutcome;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long an idle worker sleeps: flags that others set (a reload asked for by a signal, an interrupt taken back) wake nobody.
const NAP: Duration = Duration::from_millis(100);

/// Who is told what came of a reload.
pub type ReloadDone = Box<dyn FnOnce(ReloadOutcome) + Send>;

/// A job, who wants to know, and since when.
pub struct Request {
    pub job: Job,
    pub sink: Sink,
    pub submitted: Instant,
}

/// Between callers and the worker.
pub struct Inbox {
    state: Mutex<State>,
    news: Condvar,
    /// Jobs that may wait beside those that slots are free for.
    most: usize,
    status: Mutex<ServingStatus>,
}

struct State {
    waiting: VecDeque<Request>,
    reloads: Vec<ReloadDone>,
    /// Slots that nobody works in.
    free: usize,
    stopping: bool,
}

impl Inbox {
    /// Of a worker with so many slots, all of them free.
    pub fn new(slots: usize, most: usize, status: ServingStatus) -> Self {
        let state = State { waiting: VecDeque::new(), reloads: Vec::new(), free: slots, stopping: false };
        Self { state: Mutex::new(state), news: Condvar::new(), most, status: Mutex::new(status) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown(&self) -> MutexGuard<'_, ServingStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a job.
    ///
    /// # Errors
    /// Too many are waiting, or the worker has ended.
    pub fn submit(&self, job: Job, sink: Sink) -> Result<(), Refused> {
        let mut state = self.state();
        if state.stopping {
            return Err(Refused::Stopped);
        }
        let waiting = state.waiting.len();
        if waiting >= self.most.saturating_add(state.free) {
            return Err(Refused::Full { waiting });
        }
        state.waiting.push_back(Request { job, sink, submitted: Instant::now() });
        self.news.notify_one();
        Ok(())
    }

    /// Leaves the wish for a reload; gives `done` back if the worker has ended.
    pub fn reload(&self, done: ReloadDone) -> Result<(), ReloadDone> {
        let mut state = self.state();
        if state.stopping {
            return Err(done);
        }
        state.reloads.push(done);
        self.news.notify_one();
        Ok(())
    }

    /// What the worker showed last.
    pub fn status(&self) -> ServingStatus {
        let waiting = self.state().waiting.len();
        ServingStatus { waiting, ..self.shown().clone() }
    }

    /// The worker shall end; nothing is taken from now on.
    pub fn stop(&self) {
        self.state().stopping = true;
        self.news.notify_one();
    }

    /// Whether the worker shall end.
    pub fn is_stopping(&self) -> bool {
        self.state().stopping
    }

    /// The next job, for one of the free slots, which is not free from now on.
    pub fn take(&self) -> Option<Request> {
        let mut state = self.state();
        debug_assert!(state.free > 0, "a job is taken for a free slot");
        let request = state.waiting.pop_front()?;
        state.free -= 1;
        Some(request)
    }

    /// A slot is free again.
    pub fn free_slot(&self) {
        self.state().free += 1;
    }

    /// Reloads that somebody waits for.
    pub fn take_reloads(&self) -> Vec<ReloadDone> {
        std::mem::take(&mut self.state().reloads)
    }

    /// All jobs that wait.
    pub fn take_all(&self) -> VecDeque<Request> {
        std::mem::take(&mut self.state().waiting)
    }

    /// Sleeps until there is something to do or flags should be looked at; at once if there is something, jobs not counted
    /// where they cannot be taken.
    pub fn nap(&self, jobs: bool) {
        let state = self.state();
        if state.stopping || !state.reloads.is_empty() || jobs && !state.waiting.is_empty() {
            return;
        }
        drop(self.news.wait_timeout(state, NAP));
    }

    /// Shows what the worker does now.
    pub fn show(&self, update: impl FnOnce(&mut ServingStatus)) {
        update(&mut self.shown());
    }
}
