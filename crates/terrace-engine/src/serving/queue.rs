//! Jobs and reloads that wait for the worker, and what it lets callers see. No call waits for a computation.

use super::job::{Job, Refused, Sink};
use super::status::ServingStatus;
use crate::reload::reloads::ReloadOutcome;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long an idle worker sleeps: flags that others set (a reload asked for by a signal, an interrupt taken back) do not wake it.
const NAP: Duration = Duration::from_millis(100);

/// Called with what came of a reload.
pub type ReloadDone = Box<dyn FnOnce(ReloadOutcome) + Send>;

/// A job that waits, with what is told of it, and since when.
pub struct Request {
    pub job: Job,
    pub sink: Sink,
    pub submitted: Instant,
    pub standing: Arc<Standing>,
}

/// What has become of a job and of its caller. Written under the queue's lock.
#[derive(Debug, Default)]
pub struct Standing {
    /// The caller does not want it any more.
    left: AtomicBool,
    /// The job has ended.
    ended: AtomicBool,
}

impl Standing {
    /// Whether the caller does not want it any more.
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}

/// Between callers and the worker.
pub struct Queue {
    state: Mutex<State>,
    news: Condvar,
    /// Jobs that may wait beside those that slots are free for.
    most: usize,
    status: Mutex<ServingStatus>,
}

struct State {
    waiting: VecDeque<Request>,
    reloads: Vec<ReloadDone>,
    /// Slots without a job.
    free: usize,
    /// Slots whose job will end before the next batch, because its caller has left.
    leaving: usize,
    stopping: bool,
}

impl Queue {
    /// For a worker with n slots, all of them free.
    pub fn new(slots: usize, most: usize, status: ServingStatus) -> Self {
        let state =
            State { waiting: VecDeque::new(), reloads: Vec::new(), free: slots, leaving: 0, stopping: false };
        Self { state: Mutex::new(state), news: Condvar::new(), most, status: Mutex::new(status) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown(&self) -> MutexGuard<'_, ServingStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job.
    ///
    /// # Errors
    /// Too many are waiting, or the worker has ended.
    pub fn submit(&self, job: Job, sink: Sink) -> Result<Arc<Standing>, Refused> {
        let mut state = self.state();
        if state.stopping {
            return Err(Refused::Stopped);
        }
        let waiting = state.waiting.len();
        if waiting >= self.most.saturating_add(state.free + state.leaving) {
            return Err(Refused::Full { waiting });
        }
        let standing = Arc::<Standing>::default();
        let submitted = Instant::now();
        state.waiting.push_back(Request { job, sink, submitted, standing: Arc::clone(&standing) });
        self.news.notify_one();
        Ok(standing)
    }

    /// The caller of a job does not want it any more: takes it out, or has the worker end it before the next batch.
    pub fn leave(&self, standing: &Arc<Standing>) {
        let mut state = self.state();
        let place = state.waiting.iter().position(|request| Arc::ptr_eq(&request.standing, standing));
        if let Some(place) = place {
            let request = state.waiting.remove(place);
            drop(state);
            drop(request);
        } else if !standing.ended.load(Ordering::Relaxed) {
            standing.left.store(true, Ordering::Relaxed);
            state.leaving += 1;
        }
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

    /// A job has ended, and its slot is free again.
    pub fn free_slot(&self, standing: &Standing) {
        let mut state = self.state();
        state.free += 1;
        standing.ended.store(true, Ordering::Relaxed);
        if standing.has_left() {
            state.leaving -= 1;
        }
    }

    /// Reloads that callers wait for.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::job::Prompt;
    use std::ops::ControlFlow;
    use terrace_ggml::llama::Sampling;

    fn submit(queue: &Queue) -> Result<Arc<Standing>, Refused> {
        let job = Job {
            prompt: Prompt::unchecked(vec![1]),
            n_max: None,
            sampling: Sampling::greedy(),
            stop: Vec::new(),
            reuse: false,
        };
        queue.submit(job, Box::new(|_| ControlFlow::Continue(())))
    }

    #[test]
    fn callers_that_leave_make_room() {
        let queue = Queue::new(1, 1, ServingStatus::default());
        let first = submit(&queue).unwrap();
        assert!(queue.take().is_some());
        for _ in 0..3 {
            let waits = submit(&queue).unwrap();
            assert_eq!(submit(&queue).unwrap_err(), Refused::Full { waiting: 1 });
            queue.leave(&waits);
            assert_eq!(queue.status().waiting, 0);
        }
        // A job that will end before the next batch has as good as given its slot back.
        let second = submit(&queue).unwrap();
        queue.leave(&first);
        assert!(first.has_left() && !second.has_left());
        let third = submit(&queue).unwrap();
        assert_eq!(submit(&queue).unwrap_err(), Refused::Full { waiting: 2 });
        queue.free_slot(&first);
        assert_eq!(submit(&queue).unwrap_err(), Refused::Full { waiting: 2 });
        // It has ended already: there is nothing to leave.
        queue.leave(&first);
        assert_eq!(submit(&queue).unwrap_err(), Refused::Full { waiting: 2 });
        queue.leave(&second);
        assert!(Arc::ptr_eq(&queue.take().unwrap().standing, &third));
        queue.stop();
        assert_eq!(submit(&queue).unwrap_err(), Refused::Stopped);
    }
}
