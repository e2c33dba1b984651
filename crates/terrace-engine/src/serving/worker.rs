//! The thread that owns the engine: takes jobs and reloads between rounds, and tells callers what becomes of theirs.

use super::inbox::{Inbox, Request};
use super::job::{Answer, Event};
use super::slot::Slot;
use super::status::Totals;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::generate::{StopReason, Timings};
use crate::options::OnReload;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use terrace_ggml::llama::Batch;

/// How long nobody must have asked anything before statistics of experts are written.
const QUIET: Duration = Duration::from_secs(2);

/// The engine, and the jobs in its slots.
pub struct Worker {
    pub(super) engine: Engine,
    inbox: Arc<Inbox>,
    pub(super) slots: Vec<Slot>,
    /// Whether all slots' tokens are computed together.
    pub(super) together: bool,
    interrupt: Arc<AtomicBool>,
    /// Jobs that were begun.
    begun: u64,
    /// The slot that evaluated a part of a prompt last.
    pub(super) turn: usize,
    pub(super) totals: Totals,
    /// When the last job ended, until statistics are written.
    unsaved: Option<Instant>,
    /// Reused: what is computed next, and the slots that it is for.
    pub(super) batch: Batch,
    pub(super) ready: Vec<usize>,
    /// Reused: a token's text.
    pub(super) piece: Vec<u8>,
}

/// Tells callers that nobody works any more, however that came about.
struct Ended(Arc<Inbox>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.stop();
        drop(self.0.take_all());
        drop(self.0.take_reloads());
    }
}

impl Worker {
    pub fn new(engine: Engine, inbox: Arc<Inbox>, slots: u32, together: bool) -> Self {
        let interrupt = engine.interrupt_flag();
        Self {
            engine,
            inbox,
            slots: (0..slots).map(Slot::new).collect(),
            together,
            interrupt,
            begun: 0,
            turn: 0,
            totals: Totals::default(),
            unsaved: None,
            batch: Batch::default(),
            ready: Vec::new(),
            piece: Vec::new(),
        }
    }

    /// Works until it is told to stop; gives the engine back, with an empty context.
    pub fn run(mut self) -> Engine {
        let _ended = Ended(Arc::clone(&self.inbox));
        self.engine.reset();
        while !self.inbox.is_stopping() {
            self.reload();
            let interrupted = self.interrupt.load(Ordering::Relaxed);
            if interrupted {
                self.cancel_all();
            } else {
                self.admit();
            }
            if self.slots.iter().all(Slot::is_idle) {
                self.idle(!interrupted);
                continue;
            }
            self.decode();
            self.prefill();
            self.show();
        }
        self.cancel_all();
        for request in self.inbox.take_all() {
            self.refuse(request);
        }
        self.engine.reset();
        self.engine
    }

    /// Reloads that somebody asked for, between two batches.
    fn reload(&mut self) {
        let epoch = self.engine.epoch();
        if self.engine.reload_is_asked() {
            self.engine.requested_reload();
            self.reloaded(epoch);
        }
        for done in self.inbox.take_reloads() {
            let epoch = self.engine.epoch();
            let outcome = self.engine.reload_changed();
            self.reloaded(epoch);
            done(outcome);
        }
    }

    /// Keys and values of another epoch are of no use any more, unless they shall stay.
    fn reloaded(&mut self, before: u64) {
        if self.engine.epoch() != before && self.engine.reloads().then == OnReload::Clear {
            self.engine.reset();
            for slot in &mut self.slots {
                self.totals.recomputed_tokens += slot.forget() as u64;
            }
        }
        self.show();
    }

    /// Puts waiting jobs into idle slots.
    fn admit(&mut self) {
        while self.slots.iter().any(Slot::is_idle)
            && let Some(request) = self.inbox.take()
        {
            self.begin(request);
        }
    }

    fn begin(&mut self, request: Request) {
        let (index, reused) = self.slot_for(&request);
        let reused = self.cut(index, reused);
        self.begun += 1;
        let slot = &mut self.slots[index];
        slot.begin(request, reused, self.begun);
        let epoch = self.engine.epoch();
        let prompt_tokens = slot.tokens.len();
        self.tell(index, Event::Started { prompt_tokens, reused, epoch });
    }

    /// Tells a job's caller; false if there is none any more, and then the job has ended.
    pub(super) fn tell(&mut self, index: usize, event: Event) -> bool {
        let work = self.slots[index].work.as_mut().expect("a job in the slot");
        let goes_on = (work.sink)(event).is_continue();
        if !goes_on {
            self.totals.ended.cancelled += 1;
            drop(self.slots[index].end());
            self.freed();
        }
        goes_on
    }

    /// A job is done. `stopped`: the place of the stop string that ended it.
    pub(super) fn finish(&mut self, index: usize, stop: StopReason, stopped: Option<usize>) {
        let slot = &mut self.slots[index];
        let work = slot.work.as_mut().expect("a job in the slot");
        let mut text = Vec::new();
        if stopped.is_none() {
            work.stops.rest(&mut text);
        }
        if !text.is_empty() && !self.tell(index, Event::Text(text)) {
            return;
        }
        let (mut work, tokens) = self.slots[index].end().expect("a job in the slot");
        let stop_string = stopped.map(|i| work.stop_strings.swap_remove(i));
        let answer = work.answer(tokens, stop, stop_string, self.engine.epoch());
        self.totals.ended.count(stop);
        // Who is told may bring the next job at once.
        self.freed();
        let _ = (work.sink)(Event::Finished(answer));
    }

    pub(super) fn fail(&mut self, index: usize, error: EngineError) {
        let (mut work, _) = self.slots[index].end().expect("a job in the slot");
        self.totals.ended.failed += 1;
        self.freed();
        let _ = (work.sink)(Event::Failed(error));
    }

    fn freed(&mut self) {
        self.inbox.free_slot();
        self.unsaved = Some(Instant::now());
        self.show();
    }

    fn cancel_all(&mut self) {
        for index in 0..self.slots.len() {
            if !self.slots[index].is_idle() {
                self.finish(index, StopReason::Cancelled, None);
            }
        }
    }

    /// Ends a job that has no slot.
    fn refuse(&mut self, mut request: Request) {
        self.totals.ended.cancelled += 1;
        let epoch = self.engine.epoch();
        let _ = (request.sink)(Event::Finished(Answer {
            tokens: Vec::new(),
            stop: StopReason::Cancelled,
            stop_string: None,
            prompt_tokens: request.job.prompt.len(),
            reused: 0,
            timings: Timings::default(),
            queued_ms: request.submitted.elapsed().as_secs_f64() * 1e3,
            epochs: (epoch, epoch),
        }));
    }

    /// Nothing to compute.
    fn idle(&mut self, jobs: bool) {
        if self.unsaved.is_some_and(|since| since.elapsed() >= QUIET) {
            self.unsaved = None;
            self.engine.save_warm_start();
        }
        self.inbox.nap(jobs);
    }

    fn show(&self) {
        self.inbox.show(|status| {
            for (shown, slot) in status.slots.iter_mut().zip(&self.slots) {
                *shown = slot.status();
            }
            status.totals = self.totals;
            status.epoch = self.engine.epoch();
            status.store = self.engine.store_stats();
            status.hot = self.engine.hot_totals();
        });
    }
}
