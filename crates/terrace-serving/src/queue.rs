//! Jobs and reloads that wait for the worker, and the status that it publishes. No call waits for a
//! computation. `model-check` runs this file.

use super::apply::Apply;
use super::embed::{EmbedDone, EmbedJob, EmbedRequest};
use super::job::{Prepared, Refused, Sink};
use super::slot_task::SlotTask;
use super::standing::Standing;
use super::status::ServingStatus;
use crate::sync::atomic::Ordering;
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use terrace_engine::{ReloadOutcome, Take};

/// Maximum sleep of an idle worker. Flags (a reload requested by a signal, an interrupt taken back)
/// do not wake it.
const NAP: Duration = Duration::from_millis(100);

/// Maximum number of requests for a reload that wait for their outcome.
const MOST_RELOADS: usize = 1000;

/// Maximum number of learn files that wait to be applied. Each may take some megabytes.
const MOST_APPLIES: usize = 8;

/// Maximum number of tasks for slots that wait. Each may hold a conversation.
const MOST_TASKS: usize = 8;

/// Called with the outcome of a reload.
pub type ReloadDone = Box<dyn FnOnce(ReloadOutcome) + Send>;

/// A waiting job, with its sink and the time of its submission.
pub struct Request {
    pub job: Prepared,
    pub sink: Sink,
    pub submitted: Instant,
    pub standing: Arc<Standing>,
}

/// The queue between callers and the worker.
pub struct Queue {
    state: Mutex<State>,
    news: Condvar,
    /// Number of jobs that may wait beyond those for which slots are free.
    most: usize,
    status: Mutex<ServingStatus>,
}

struct State {
    waiting: VecDeque<Request>,
    reloads: Vec<(Take, ReloadDone)>,
    applies: VecDeque<Apply>,
    tasks: VecDeque<SlotTask>,
    embeds: VecDeque<EmbedRequest>,
    /// Number of requests for a reload without an outcome, including those that the worker took.
    unsettled: usize,
    /// Number of slots without a job.
    free: usize,
    /// Number of slots whose job ends before the next batch because its caller has left.
    leaving: usize,
    stopping: bool,
}

impl Queue {
    /// Makes the queue of a worker with this many slots, all free.
    pub fn new(slots: usize, most: usize, status: ServingStatus) -> Self {
        let state = State {
            waiting: VecDeque::new(),
            reloads: Vec::new(),
            applies: VecDeque::new(),
            tasks: VecDeque::new(),
            embeds: VecDeque::new(),
            unsettled: 0,
            free: slots,
            leaving: 0,
            stopping: false,
        };
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
    /// [`Refused::Full`] if too many are waiting, [`Refused::Stopped`] if the worker has ended.
    pub fn submit(&self, job: Prepared, sink: Sink) -> Result<Arc<Standing>, Refused> {
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

    /// Notes that the caller of a job has left: takes the job out of the queue, or has the worker
    /// end it before the next batch.
    pub fn leave(&self, standing: &Arc<Standing>) {
        let mut state = self.state();
        let place = state.waiting.iter().position(|request| Arc::ptr_eq(&request.standing, standing));
        if let Some(place) = place {
            let request = state.waiting.remove(place);
            drop(state);
            drop(request);
            return;
        }
        let place = state.embeds.iter().position(|request| Arc::ptr_eq(&request.standing, standing));
        if let Some(place) = place {
            let request = state.embeds.remove(place);
            drop(state);
            drop(request);
        } else if !standing.ended.load(Ordering::Relaxed) {
            standing.left.store(true, Ordering::Relaxed);
            state.leaving += usize::from(!standing.slotless);
        }
    }

    /// Adds texts to embed.
    ///
    /// # Errors
    /// As [`Queue::submit`].
    pub fn add_embed(&self, job: EmbedJob, done: EmbedDone) -> Result<Arc<Standing>, Refused> {
        let mut state = self.state();
        if state.stopping {
            return Err(Refused::Stopped);
        }
        let waiting = state.embeds.len();
        // One is computed at once.
        if waiting > self.most {
            return Err(Refused::Full { waiting });
        }
        let standing = Arc::new(Standing { slotless: true, ..Standing::default() });
        state.embeds.push_back(EmbedRequest { job, done, standing: Arc::clone(&standing) });
        self.news.notify_one();
        Ok(standing)
    }

    /// Takes the next texts to embed.
    pub fn take_embed(&self) -> Option<EmbedRequest> {
        self.state().embeds.pop_front()
    }

    /// Returns whether there are texts to embed.
    pub fn has_embeds(&self) -> bool {
        !self.state().embeds.is_empty()
    }

    /// Requests a reload.
    ///
    /// # Errors
    /// As [`Queue::submit`].
    pub fn reload(&self, take: Take, done: ReloadDone) -> Result<(), Refused> {
        let mut state = self.state();
        if state.stopping {
            return Err(Refused::Stopped);
        }
        let waiting = state.unsettled;
        if waiting >= MOST_RELOADS {
            return Err(Refused::Full { waiting });
        }
        state.unsettled += 1;
        state.reloads.push((take, done));
        self.news.notify_one();
        Ok(())
    }

    /// Adds a learn file to apply.
    ///
    /// # Errors
    /// As [`Queue::submit`].
    pub fn apply(&self, apply: Apply) -> Result<(), Refused> {
        let mut state = self.state();
        if state.stopping {
            return Err(Refused::Stopped);
        }
        let waiting = state.applies.len();
        if waiting >= MOST_APPLIES {
            return Err(Refused::Full { waiting });
        }
        state.applies.push_back(apply);
        self.news.notify_one();
        Ok(())
    }

    /// Takes the next learn file to apply.
    pub fn take_apply(&self) -> Option<Apply> {
        self.state().applies.pop_front()
    }

    /// Adds a task for a slot.
    ///
    /// # Errors
    /// As [`Queue::submit`].
    pub fn add_task(&self, task: SlotTask) -> Result<(), Refused> {
        let mut state = self.state();
        if state.stopping {
            return Err(Refused::Stopped);
        }
        let waiting = state.tasks.len();
        if waiting >= MOST_TASKS {
            return Err(Refused::Full { waiting });
        }
        state.tasks.push_back(task);
        self.news.notify_one();
        Ok(())
    }

    /// Takes the next task for a slot that is `free`.
    pub fn take_task(&self, free: impl Fn(usize) -> bool) -> Option<SlotTask> {
        let mut state = self.state();
        let place = state.tasks.iter().position(|task| free(task.slot))?;
        state.tasks.remove(place)
    }

    /// The status that the worker published last.
    pub fn status(&self) -> ServingStatus {
        let (waiting, embeds) = {
            let state = self.state();
            (state.waiting.len(), state.embeds.len())
        };
        let shown = self.shown().clone();
        ServingStatus { waiting, embedding: shown.embedding + embeds, ..shown }
    }

    /// Tells the worker to end; no jobs are accepted from now on.
    pub fn stop(&self) {
        self.state().stopping = true;
        self.news.notify_one();
    }

    /// Returns whether the worker is to end.
    pub fn is_stopping(&self) -> bool {
        self.state().stopping
    }

    /// Takes the next job that can `begin`, and one of the free slots for it.
    pub fn take(&self, begin: impl Fn(&Prepared) -> bool) -> Option<Request> {
        let mut state = self.state();
        debug_assert!(state.free > 0, "a job is taken for a free slot");
        let place = state.waiting.iter().position(|request| begin(&request.job))?;
        let request = state.waiting.remove(place)?;
        state.free -= 1;
        Some(request)
    }

    /// Notes that a job has ended and its slot is free.
    pub fn free_slot(&self, standing: &Standing) {
        let mut state = self.state();
        state.free += 1;
        standing.ended.store(true, Ordering::Relaxed);
        if standing.has_left() {
            state.leaving -= 1;
        }
    }

    /// Number of waiting jobs of a kind.
    pub fn waiting(&self, of: impl Fn(&Prepared) -> bool) -> usize {
        self.state().waiting.iter().filter(|request| of(&request.job)).count()
    }

    /// Takes the requests for a reload, which count until [`Queue::settle`].
    pub fn take_reloads(&self) -> Vec<(Take, ReloadDone)> {
        std::mem::take(&mut self.state().reloads)
    }

    /// Notes that this many of the taken requests for a reload get their outcome.
    pub fn settle(&self, reloads: usize) {
        self.state().unsettled -= reloads;
    }

    /// Takes all waiting jobs.
    pub fn take_all(&self) -> VecDeque<Request> {
        std::mem::take(&mut self.state().waiting)
    }

    /// Sleeps until there is work or flags should be checked, but not longer than `most`. Returns at
    /// once if there is work; waiting jobs and texts count only if `jobs` and `embeds` say that they can be taken, and tasks
    /// only if their slot is `free`.
    pub fn nap(&self, jobs: bool, embeds: bool, free: impl Fn(usize) -> bool, most: Option<Duration>) {
        let state = self.state();
        let tasks = state.tasks.iter().any(|task| free(task.slot));
        let asked = !state.reloads.is_empty() || !state.applies.is_empty() || tasks;
        let jobs = jobs && !state.waiting.is_empty() || embeds && !state.embeds.is_empty();
        if state.stopping || asked || jobs {
            return;
        }
        drop(self.news.wait_timeout(state, most.unwrap_or(NAP).min(NAP)));
    }

    /// Publishes the worker's status.
    pub fn show(&self, update: impl FnOnce(&mut ServingStatus)) {
        update(&mut self.shown());
    }
}

/// Tells callers that the worker has ended, for whatever reason, when it is dropped.
pub struct WorkerGuard(pub Arc<Queue>);

impl Drop for WorkerGuard {
    fn drop(&mut self) {
        self.0.stop();
        drop(self.0.take_all());
        drop(self.0.take_reloads());
        while self.0.take_apply().is_some() {}
        while self.0.take_task(|_| true).is_some() {}
        while self.0.take_embed().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Job, Prompt};
    use std::ops::ControlFlow;
    use terrace_ggml::llama::{Sampler, Sampling};
    use terrace_model::learn::LearnFile;

    fn submit(queue: &Queue) -> Result<Arc<Standing>, Refused> {
        let job = Job {
            prompt: Prompt::unchecked(vec![1]),
            n_max: None,
            sampling: Sampling::greedy(),
            stop: Vec::new(),
            lines: terrace_engine::LineLimits::default(),
            reuse: false,
            slot: None,
            probs: None,
            after_samplers: false,
            tokens: false,
            scored: false,
            scales: terrace_engine::Scales::default(),
        };
        let job = Prepared { job, sampler: Sampler::most_likely(), background: false };
        queue.submit(job, Box::new(|_| ControlFlow::Continue(())))
    }

    #[test]
    fn requests_for_reloads_are_bounded() {
        let queue = Queue::new(1, 1, ServingStatus::default());
        let ask = || queue.reload(Take::All, Box::new(|_| ()));
        (0..MOST_RELOADS).for_each(|_| ask().unwrap());
        let taken = queue.take_reloads().len();
        assert_eq!((taken, ask()), (MOST_RELOADS, Err(Refused::Full { waiting: MOST_RELOADS })));
        queue.settle(taken);
        ask().unwrap();
        queue.stop();
        assert_eq!(ask(), Err(Refused::Stopped));
    }

    #[test]
    fn learn_files_that_wait_are_bounded() {
        let queue = Queue::new(1, 1, ServingStatus::default());
        let ask = || queue.apply(Apply { file: LearnFile::default(), done: Box::new(|_| ()) });
        (0..MOST_APPLIES).for_each(|_| ask().unwrap());
        assert_eq!(ask(), Err(Refused::Full { waiting: MOST_APPLIES }));
        assert!(queue.take_apply().is_some());
        ask().unwrap();
        queue.stop();
        assert_eq!(ask(), Err(Refused::Stopped));
    }

    #[test]
    fn callers_that_leave_make_room() {
        let queue = Queue::new(1, 1, ServingStatus::default());
        let first = submit(&queue).unwrap();
        assert!(queue.take(|_| true).is_some());
        for _ in 0..3 {
            let waits = submit(&queue).unwrap();
            assert_eq!(submit(&queue).unwrap_err(), Refused::Full { waiting: 1 });
            queue.leave(&waits);
            assert_eq!(queue.status().waiting, 0);
        }
        // The slot of a job that ends before the next batch counts as free.
        let second = submit(&queue).unwrap();
        queue.leave(&first);
        assert!(first.has_left() && !second.has_left());
        let third = submit(&queue).unwrap();
        assert_eq!(submit(&queue).unwrap_err(), Refused::Full { waiting: 2 });
        queue.free_slot(&first);
        assert_eq!(submit(&queue).unwrap_err(), Refused::Full { waiting: 2 });
        // The job has already ended, so leaving it changes nothing.
        queue.leave(&first);
        assert_eq!(submit(&queue).unwrap_err(), Refused::Full { waiting: 2 });
        queue.leave(&second);
        assert!(Arc::ptr_eq(&queue.take(|_| true).unwrap().standing, &third));
        queue.stop();
        assert_eq!(submit(&queue).unwrap_err(), Refused::Stopped);
    }
}
