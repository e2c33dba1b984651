//! The thread that owns the engine: round by round a token of each job that generates, and a batch of a prompt.

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
use terrace_ggml::llama::{Batch, ContextError};

/// How long nobody must have asked anything before statistics of experts are written.
const QUIET: Duration = Duration::from_secs(2);

/// A slot is chosen for what it holds if that spares at least this part of the prompt; else the one that was used longest ago:
/// nearly all prompts begin with the same few tokens. As llama.cpp's server has it (`--slot-prompt-similarity 0.10`).
const WORTH: usize = 10;

/// The engine, and the jobs in its slots.
pub struct Worker {
    engine: Engine,
    inbox: Arc<Inbox>,
    slots: Vec<Slot>,
    /// Whether all slots' tokens are computed together.
    together: bool,
    interrupt: Arc<AtomicBool>,
    /// Jobs that were begun.
    begun: u64,
    /// The slot that evaluated a part of a prompt last.
    turn: usize,
    totals: Totals,
    /// When the last job ended, until statistics are written.
    unsaved: Option<Instant>,
    /// Reused: what is computed next, and the slots that it is for.
    batch: Batch,
    ready: Vec<usize>,
    /// Reused: a token's text.
    piece: Vec<u8>,
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

    /// The slot for a job, and how many tokens of its prompt that holds.
    fn slot_for(&self, request: &Request) -> (usize, usize) {
        let prompt = &request.job.prompt;
        let idle = || self.slots.iter().enumerate().filter(|(_, slot)| slot.is_idle());
        let reusable = |slot| if request.job.reuse { self.reusable(slot, prompt) } else { 0 };
        let best = idle().map(|(i, slot)| (i, reusable(slot))).max_by_key(|&(_, reused)| reused);
        if let Some((index, reused)) = best
            && reused > 0
            && reused * WORTH >= prompt.len()
        {
            return (index, reused);
        }
        let (index, slot) =
            idle().min_by_key(|(_, slot)| slot.used).expect("a job is taken for an idle slot");
        (index, reusable(slot))
    }

    /// How many tokens of a prompt need not be evaluated in this slot. The last one always is: its logits are wanted.
    fn reusable(&self, slot: &Slot, prompt: &[i32]) -> usize {
        let common = slot.common(prompt);
        if common == slot.held && common < prompt.len() {
            return common;
        }
        let common = common.min(prompt.len() - 1);
        let model = self.engine.model();
        // Sliding windows: the next token looks back on positions that may have been overwritten since.
        let window =
            (model.sliding_window() > 0).then(|| common.saturating_sub(model.sliding_window() as usize));
        let first = self.engine.first_position(slot.sequence);
        let gone = window.is_some_and(|needed| first.is_none_or(|first| first as usize > needed));
        if model.has_states() || gone { 0 } else { common }
    }

    /// Cuts what a slot holds back to `held` tokens, or to none where that cannot be done. How many it holds then.
    fn cut(&mut self, index: usize, held: usize) -> usize {
        let slot = &mut self.slots[index];
        if slot.held > held || held == 0 {
            let context = self.engine.context();
            let cut = held > 0 && u32::try_from(held).is_ok_and(|held| context.truncate(slot.sequence, held));
            if !cut {
                context.truncate(slot.sequence, 0);
            }
            slot.held = if cut { held } else { 0 };
        }
        slot.held
    }

    /// Evaluates the next part of a prompt, of one slot after the other, in the pieces that llama.cpp computes as a graph.
    fn prefill(&mut self) {
        let n = self.slots.len();
        let next = (1..=n).map(|step| (self.turn + step) % n).find(|&i| self.slots[i].wants_prefill());
        let Some(index) = next else { return };
        self.turn = index;
        let slot = &self.slots[index];
        let tokens = (slot.batched - slot.held).min(self.engine.plan().ubatch as usize);
        let begin = Instant::now();
        self.evaluate(index, tokens);
        self.totals.prefill_seconds += begin.elapsed().as_secs_f64();
    }

    /// Evaluates the token that each generating slot chose last, and chooses the next.
    fn decode(&mut self) {
        let begin = Instant::now();
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        ready.extend((0..self.slots.len()).filter(|&i| self.slots[i].wants_decode()));
        for group in ready.chunks(if self.together { self.engine.batch() } else { 1 }) {
            match group {
                &[index] => self.evaluate(index, 1),
                group => self.evaluate_together(group),
            }
        }
        if !ready.is_empty() {
            self.totals.decode_seconds += begin.elapsed().as_secs_f64();
        }
        self.ready = ready;
    }

    /// Evaluates the next tokens of a slot, and chooses one behind them if they were the last.
    fn evaluate(&mut self, index: usize, tokens: usize) {
        if let Err(error) = self.engine.check_files() {
            return self.fail(index, error);
        }
        let slot = &mut self.slots[index];
        self.batch.clear();
        slot.add_to(&mut self.batch, tokens);
        match self.engine.context().decode_batch(&mut self.batch) {
            Ok(()) => {
                slot.evaluated(tokens, self.engine.epoch());
                if slot.held == slot.tokens.len() {
                    self.choose(index, 0);
                } else if slot.is_new() {
                    let evaluated = slot.held;
                    self.tell(index, Event::Progress { evaluated });
                }
            }
            Err(error) => {
                let held = slot.held;
                self.cut(index, held);
                match error {
                    ContextError::Interrupted => self.finish(index, StopReason::Cancelled, None),
                    error => self.fail(index, error.into()),
                }
            }
        }
    }

    /// Evaluates a token of each of several slots in one batch. If that fails, one by one: whose fault it is shows then.
    fn evaluate_together(&mut self, group: &[usize]) {
        self.batch.clear();
        for &index in group {
            self.slots[index].add_to(&mut self.batch, 1);
        }
        let files = self.engine.check_files();
        let decoded = files.and_then(|()| Ok(self.engine.context().decode_batch(&mut self.batch)?));
        if decoded.is_ok() {
            for &index in group {
                self.slots[index].evaluated(1, self.engine.epoch());
            }
            for (row, &index) in group.iter().enumerate() {
                self.choose(index, row);
            }
            return;
        }
        for &index in group {
            let held = self.slots[index].held;
            if self.cut(index, held) != held {
                // Nothing is left of it: it goes the long way again.
                self.slots[index].held = held;
                self.totals.recomputed_tokens += self.slots[index].forget() as u64;
            }
        }
        for &index in group {
            if self.slots[index].wants_decode() {
                self.evaluate(index, 1);
            }
        }
    }

    /// Chooses a token from a row of logits, and ends the job where that ends it.
    fn choose(&mut self, index: usize, row: usize) {
        let slot = &mut self.slots[index];
        let work = slot.work.as_mut().expect("a job was evaluated");
        let epoch = self.engine.epoch();
        work.epochs = Some((work.epochs.map_or(slot.epoch, |(first, _)| first), epoch));
        if work.evaluated.is_none() {
            work.evaluated = Some(Instant::now());
            self.totals.prompt_tokens += (work.prompt - work.reused) as u64;
            self.totals.reused_tokens += work.reused as u64;
        }
        if work.n_max == Some(0) {
            return self.finish(index, StopReason::Length, None);
        }
        let token = work.sampler.sample_row(self.engine.context(), row);
        work.first.get_or_insert_with(Instant::now);
        if self.engine.vocab().is_end(token) {
            return self.finish(index, StopReason::EndOfText, None);
        }
        slot.tokens.push(token.0);
        self.totals.generated_tokens += 1;
        self.piece.clear();
        self.engine.vocab().piece(token, false, &mut self.piece);
        let mut text = Vec::new();
        let stopped = work.stops.push(&self.piece, &mut text);
        let generated = slot.tokens.len() - work.prompt;
        let (length, full) = (work.n_max == Some(generated), slot.held == self.engine.context_size());
        if !text.is_empty() && !self.tell(index, Event::Text(text)) {
            return;
        }
        if stopped.is_some() {
            self.finish(index, StopReason::StopString, stopped);
        } else if length {
            self.finish(index, StopReason::Length, None);
        } else if full {
            self.finish(index, StopReason::ContextFull, None);
        }
    }

    /// Tells a job's caller; false if there is none any more, and then the job has ended.
    fn tell(&mut self, index: usize, event: Event) -> bool {
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
    fn finish(&mut self, index: usize, stop: StopReason, stopped: Option<usize>) {
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

    fn fail(&mut self, index: usize, error: EngineError) {
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
        });
    }
}
