//! The thread that owns the engine: takes jobs and reloads between rounds, and sends events to
//! callers.

mod background;
mod embeds;
mod experts;
mod keeping;
mod lockstep;
mod prompts;
mod reuse;
mod rounds;
mod slot_tasks;

use crate::job::{Event, Prepared, Sink};
use crate::live::Live;
use crate::pace::Pace;
use crate::queue::{Queue, ReloadDone, Request, WorkerGuard};
use crate::slot::{Slot, Work};
use crate::status::Totals;
use crate::together::Together;
use crate::{Lockstep, ServingOptions};
use embeds::EmbedWork;
use experts::Shown;
use prompts::PromptsTogether;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_engine::prompt_cache::PromptCache;
use terrace_engine::prompt_cache::usable::Memory;
use terrace_engine::steps::{Generation, Stop};
use terrace_engine::{Answer, Engine, EngineError, ExpertsUsed, OnReload, Session};
use terrace_ggml::llama::Batch;
use terrace_model::learn::Reported;

/// Idle time after which the model's record is written.
const QUIET: Duration = Duration::from_secs(2);

/// Time after the last job's end after which conversations go to disk.
const MOMENT: Duration = Duration::from_millis(500);

/// Time after which a learn file is written even if other jobs go on.
const LATE: Duration = Duration::from_secs(5);

/// The engine, and the jobs in its slots.
pub struct Worker {
    pub(super) engine: Engine,
    pub(super) queue: Arc<Queue>,
    pub(super) live: Arc<Live>,
    pub(super) shown: Shown,
    pub(super) slots: Vec<Slot>,
    /// Which slots' tokens are computed together.
    pub(super) together: Together,
    /// Which slots' prompts are evaluated together.
    pub(super) prompts: PromptsTogether,
    /// Number of prompt tokens evaluated at once.
    pub(super) pace: Pace,
    /// The order of work for batches; `None`: that for callers who wait.
    pub(super) lockstep: Option<Lockstep>,
    interrupt: Arc<AtomicBool>,
    /// Callers that wait for the outcome of the pending reload.
    reloads: Vec<ReloadDone>,
    /// Number of jobs begun.
    pub(super) begun: u64,
    /// The slot that evaluated part of a prompt last.
    pub(super) turn: usize,
    pub(super) totals: Totals,
    /// When the last job ended; `None` once the record has been written.
    unsaved: Option<Instant>,
    /// When the first job ended since the learn file was written; `None` if none has.
    unlearned: Option<Instant>,
    /// When the last job ended.
    ended: Option<Instant>,
    /// Reused: the next batch, and the slots that it is for.
    pub(super) batch: Batch,
    pub(super) ready: Vec<usize>,
    /// Kept conversations, and what they depend on.
    pub(super) kept: PromptCache,
    pub(super) memory: Memory,
    /// The job that embeds texts.
    pub(super) embedding: Option<EmbedWork>,
    /// Jobs that wait for files of kept conversations, each with a free slot.
    pub(super) reading: Vec<(PathBuf, Request)>,
}

impl Worker {
    pub fn new(mut engine: Engine, queue: Arc<Queue>, live: Arc<Live>, options: ServingOptions) -> Self {
        let together = Together::new(&engine, &options);
        let prompts = PromptsTogether::new(&engine, &options);
        let ServingOptions { slots, prefill_latency, lockstep, queue: _, batch_slots: _, share_passes: _ } =
            options;
        let interrupt = engine.interrupt_flag();
        let (kept, memory) = (engine.take_prompt_cache(), engine.memory());
        let pace = Pace::new(prefill_latency, engine.plan().ubatch as usize);
        Self {
            kept,
            memory,
            reading: Vec::new(),
            embedding: None,
            engine,
            queue,
            live,
            shown: Shown::default(),
            slots: (0..slots).map(Slot::new).collect(),
            together,
            prompts,
            pace,
            lockstep,
            interrupt,
            reloads: Vec::new(),
            begun: 0,
            turn: 0,
            totals: Totals::default(),
            unsaved: None,
            unlearned: None,
            ended: None,
            batch: Batch::default(),
            ready: Vec::new(),
        }
    }

    /// Works until it is told to stop. Returns the engine with an empty context.
    pub fn run(mut self) -> Engine {
        let _ended = WorkerGuard(Arc::clone(&self.queue));
        self.engine.reset();
        while !self.queue.is_stopping() {
            self.reload();
            self.apply();
            self.slot_tasks();
            self.cancel_left();
            self.read_back(false);
            let interrupted = self.interrupt.load(Ordering::Relaxed);
            if interrupted {
                self.cancel_all();
            } else {
                self.admit();
            }
            let embeds = !interrupted && self.embeds();
            if !embeds && self.slots.iter().all(|slot| slot.is_idle() || slot.stalled) {
                self.idle(!interrupted);
                continue;
            }
            self.save_learned(LATE);
            self.rest();
            if self.lockstep.is_some() {
                self.close_ranks();
                self.share_prefixes();
            }
            // In lockstep, all go on together once all prompts are evaluated.
            if self.lockstep.is_none() || !self.slots.iter().any(Slot::wants_prefill) {
                self.decode();
            }
            self.prefill();
            if embeds {
                self.embed();
            }
            self.show();
            self.shown.stale = true;
            self.look(false);
        }
        self.cancel_all();
        for request in self.queue.take_all() {
            self.refuse(request);
        }
        self.write_all();
        self.engine.reset();
        self.engine
    }

    /// Tries the requested reload, if there is one. All that requested it before a try share its
    /// outcome; while a file is being written, jobs go on until the next try.
    fn reload(&mut self) {
        let asked = self.queue.take_reloads();
        if !asked.is_empty() {
            for (take, done) in asked {
                self.engine.ask_reload(take);
                self.reloads.push(done);
            }
        }
        let epoch = self.engine.epoch();
        let Some(outcome) = self.engine.step_reload() else { return };
        self.reloaded(epoch);
        self.slots.iter_mut().for_each(|slot| slot.stalled = false);
        self.embedding.iter_mut().for_each(|work| work.stalled = false);
        self.queue.settle(self.reloads.len());
        for done in self.reloads.drain(..) {
            done(outcome.clone());
        }
    }

    /// Drops keys and values of an earlier epoch, unless they are to be kept.
    fn reloaded(&mut self, before: u64) {
        if self.engine.epoch() != before {
            self.kept.ram.clear();
            self.embedding.iter_mut().for_each(EmbedWork::reloaded);
        }
        if self.engine.epoch() != before && self.engine.reloads().then == OnReload::Clear {
            self.engine.reset();
            self.forget_checkpoints();
            for slot in &mut self.slots {
                self.totals.recomputed_tokens += slot.forget() as u64;
            }
        }
        self.shown.stale = true;
        self.show();
    }

    /// Puts waiting jobs into idle slots.
    pub(super) fn admit(&mut self) {
        if !self.may_refill() {
            return;
        }
        self.displace();
        let mut begun = false;
        loop {
            // A job that waits for a file has a slot already, whichever that will be.
            let free = self.slots.iter().filter(|slot| slot.is_idle()).count();
            if free <= self.reading.len() {
                break;
            }
            let can_begin = |job: &Prepared| {
                let slot = job.slot.map(|index| self.slots.get(index));
                slot.is_none_or(|slot| slot.is_some_and(Slot::is_idle) && self.reading.is_empty())
            };
            let first = self.queue.take(|job| !job.background && can_begin(job));
            let behind = || self.queue.take(|job| job.background && self.has_room() && can_begin(job));
            let Some(request) = first.or_else(behind) else { break };
            self.begin(request, None);
            begun = true;
        }
        // The first part of a prompt may take long.
        if begun {
            self.show();
        }
    }

    fn forget_checkpoints(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.checkpoint = None);
    }

    /// Notes that the jobs in the slots share what is counted, if there are several.
    pub(super) fn note_shared(&mut self) {
        let mut working: Vec<&mut Work> =
            self.slots.iter_mut().filter_map(|slot| slot.work.as_mut()).collect();
        if working.len() > 1 {
            working.iter_mut().filter_map(|work| work.mark.as_mut()).for_each(|mark| mark.shared = true);
        }
    }

    /// Expert counters of a job, if they are to be reported.
    fn experts_used(&self, index: usize) -> Option<ExpertsUsed> {
        let mark = self.slots[index].work.as_ref()?.mark.as_ref()?;
        (self.live.mode() != Reported::Off).then(|| mark.since(&self.engine))
    }

    /// Sends an event to a job's caller. Returns false if the caller cancelled the job, which has
    /// then ended.
    pub(super) fn tell(&mut self, index: usize, event: Event) -> bool {
        let work = self.slots[index].work.as_mut().expect("a job in the slot");
        let goes_on = (work.sink)(event).is_continue();
        if !goes_on {
            self.cancel(index);
        }
        goes_on
    }

    /// Ends a job without an event.
    fn cancel(&mut self, index: usize) {
        self.totals.ended.cancelled += 1;
        drop(self.take(index));
    }

    /// Ends a job, after sending text that was held back.
    pub(super) fn finish(&mut self, index: usize, stop: Stop) {
        let work = self.slots[index].work.as_mut().expect("a job in the slot");
        let mut text = Vec::new();
        work.generation.release(stop, &mut text);
        if text.is_empty() || self.tell(index, Event::Text(text)) {
            self.end(index, stop);
        }
    }

    /// Ends a job whose text has all been sent.
    pub(super) fn end(&mut self, index: usize, stop: Stop) {
        let epoch = self.engine.epoch();
        self.totals.ended.count(stop.reason());
        let experts = self.experts_used(index);
        let lossy = self.slots[index].work.as_ref().and_then(|work| self.engine.lossy_since(work.lost));
        // The caller may submit its next job at once, so the slot is freed first.
        let (mut sink, answer) =
            self.take_with(index, |session, generation| generation.end(session, stop, epoch));
        let answer = Answer { experts, lossy, ..answer };
        log(&answer);
        self.engine.count_lengths(&answer);
        let _ = sink(Event::Finished(Box::new(answer)));
    }

    pub(super) fn fail(&mut self, index: usize, error: EngineError) {
        self.totals.ended.failed += 1;
        let mut sink = self.take(index);
        let _ = sink(Event::Failed(error));
    }

    /// Takes a job out of its slot, which becomes free; what it leaves there may serve the next
    /// one.
    fn take(&mut self, index: usize) -> Sink {
        self.take_with(index, |session, _| session.settle()).0
    }

    fn take_with<T>(&mut self, index: usize, end: impl FnOnce(&mut Session, Generation) -> T) -> (Sink, T) {
        let slot = &mut self.slots[index];
        (slot.stalled, slot.resting) = (false, false);
        self.engine.settle_drafts(&mut slot.session, true);
        let Work { sink, generation, standing, .. } = slot.work.take().expect("a job in the slot");
        let ended = end(&mut slot.session, generation);
        self.queue.free_slot(&standing);
        self.worked();
        self.show();
        // Whoever has the answer may ask at once what it took.
        self.shown.stale = true;
        self.look(true);
        (sink, ended)
    }

    /// Notes that a job has ended.
    pub(super) fn worked(&mut self) {
        self.unsaved = Some(Instant::now());
        self.ended = Some(Instant::now());
        self.unlearned.get_or_insert_with(Instant::now);
    }

    /// Ends the jobs whose callers have left.
    fn cancel_left(&mut self) {
        if self.embedding.as_ref().is_some_and(|work| work.standing.has_left()) {
            self.cancel_embedding();
        }
        for index in 0..self.slots.len() {
            if self.slots[index].work.as_ref().is_some_and(|work| work.standing.has_left()) {
                self.cancel(index);
            }
        }
        for (_, request) in self.reading.extract_if(.., |(_, request)| request.standing.has_left()) {
            self.totals.ended.cancelled += 1;
            self.queue.free_slot(&request.standing);
        }
    }

    fn cancel_all(&mut self) {
        self.cancel_embedding();
        for (_, request) in std::mem::take(&mut self.reading) {
            self.queue.free_slot(&request.standing);
            self.refuse(request);
        }
        for index in 0..self.slots.len() {
            if !self.slots[index].is_idle() {
                self.finish(index, Stop::CANCELLED);
            }
        }
    }

    /// Ends a job that has no slot.
    fn refuse(&mut self, mut request: Request) {
        self.totals.ended.cancelled += 1;
        let queued_ms = request.submitted.elapsed().as_secs_f64() * 1e3;
        let answer = Answer::not_begun(request.job.prompt.len(), queued_ms, self.engine.epoch());
        let _ = (request.sink)(Event::Finished(Box::new(answer)));
    }

    /// Waits for work, and writes the record after a while. Waiting jobs are work if `jobs`.
    fn idle(&mut self, jobs: bool) {
        self.look(true);
        self.save_learned(Duration::ZERO);
        if self.unsaved.is_some_and(|since| since.elapsed() >= QUIET) {
            self.unsaved = None;
            self.engine.save_record();
        }
        if self.read_back(true) || self.settled() && self.write_behind() {
            return;
        }
        let (jobs, embeds) = (jobs && self.slots.iter().any(Slot::is_idle), jobs && self.embedding.is_none());
        let most = self.engine.reload_wait();
        self.queue.nap(jobs, embeds, |slot| self.may_change(slot), most);
    }

    /// Returns whether no job has ended a moment ago: whoever has its answer may go on at once.
    fn settled(&self) -> bool {
        self.ended.is_none_or(|ended| ended.elapsed() >= MOMENT)
    }

    /// Writes the learn file if a job has ended this long ago.
    fn save_learned(&mut self, ago: Duration) {
        if self.unlearned.is_some_and(|since| since.elapsed() >= ago) {
            self.unlearned = None;
            self.engine.save_learned();
        }
    }

    pub(super) fn show(&self) {
        // These wait for the store's lock, so the status is not locked meanwhile: whoever asks for
        // it would wait as well.
        let (store, hot) = (self.engine.store_stats(), self.engine.hot_totals());
        let (epoch, drafts) = (self.engine.epoch(), self.engine.draft_counts().unwrap_or_default());
        let (kept, quality) = (self.kept.status(self.checkpoint_bytes()), self.engine.budget_spent());
        self.queue.show(|status| {
            for (shown, slot) in status.slots.iter_mut().zip(&self.slots) {
                *shown = slot.status();
            }
            status.totals = Totals { drafts, ..self.totals };
            status.embedding = usize::from(self.embedding.is_some());
            (status.epoch, status.store, status.hot) = (epoch, store, hot);
            (status.prompt_cache, status.quality) = (kept, quality);
        });
    }
}

/// Logs an answer, with what was done with experts meanwhile.
fn log(answer: &Answer) {
    let Answer { prompt_tokens, tokens, stop, timings, .. } = answer;
    let (tokens, tps) = (tokens.len(), (timings.decode_tps * 10.0).round() / 10.0);
    match &answer.experts {
        None => tracing::info!(prompt_tokens, tokens, ?stop, tps, "answered"),
        Some(ExpertsUsed { hot, cold, exchanged, candidates, layers_changed, store, shared, .. }) => {
            tracing::info!(
                prompt_tokens,
                tokens,
                ?stop,
                tps,
                hot,
                cold,
                exchanged,
                candidates,
                layers_changed,
                hits = store.hits,
                misses = store.misses,
                shared,
                "answered"
            );
        }
    }
}
