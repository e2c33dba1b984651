//! Answers several callers with one model: a worker thread owns the engine; callers submit jobs and
//! receive events. A caller keeps a [`Ticket`] for as long as it wants the answer.
//!
//! The context has a sequence of its own for each *slot*
//! ([`ContextOptions::sequences`](terrace_engine::options::ContextOptions::sequences) without
//! [`ContextOptions::unified`](terrace_engine::options::ContextOptions::unified)), and a slot works on one
//! job at a time. In each round the worker computes one token of each generating job, then at most
//! one graph of one prompt, or of several that share what is read from disk
//! ([`ServingOptions::share_passes`]), so that a long prompt does not stop the others; while there are others,
//! the graph may be a smaller one ([`ServingOptions::prefill_latency`]). With whole graphs, a slot
//! computes, bit for bit, what [`Engine::generate`] computes alone in a context of that size.
//!
//! An idle slot keeps its keys and values, and a later job may continue from there
//! ([`Job::reuse`]). When tensors are replaced, which happens between two batches, the keys and
//! values of all slots are either kept, or dropped and, where a job needs them, evaluated again
//! ([`OnReload`](terrace_engine::OnReload)).

mod apply;
mod embed;
mod facts;
mod job;
mod live;
mod options;
mod pace;
mod queue;
mod slot;
mod slot_task;
mod standing;
mod status;
mod sync;
mod ticket;
mod together;
mod worker;

pub use apply::ApplyDone;
pub use embed::{EmbedDone, EmbedJob, Embedded};
pub use facts::ModelFacts;
pub use job::{Event, Job, Prepared, Prompt, Refused, Sink};
pub use options::{BatchSlots, Lockstep, ServingOptions, SharePasses};
pub use queue::ReloadDone;
pub use slot_task::{SlotDone, SlotError, SlotOutcome, SlotWork};
pub use status::{FinishCounts, ServingStatus, SlotState, SlotStatus, Totals};
pub use ticket::Ticket;

use apply::Apply;
use live::Live;
use queue::Queue;
use slot_task::SlotTask;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use terrace_backend::LayerUsage;
use terrace_engine::prompt_cache::CacheKey;
use terrace_engine::steps::{Reading, Vision, tokenize, tokenize_prompt};
use terrace_engine::{Engine, EngineError, ExpertsSeen, Images, Prompted, SlotsLimit, Take, VisionError};
use terrace_ggml::llama::{Model, Sampler, Token};
use terrace_model::learn::{LearnFile, Misfit, Reported};
use worker::Worker;

/// A worker that answers jobs, seen from its callers' side.
pub struct Serving {
    queue: Arc<Queue>,
    model: Arc<Model>,
    vision: Option<Arc<Vision>>,
    facts: ModelFacts,
    live: Arc<Live>,
    slots_limit: Option<SlotsLimit>,
    interrupt: Arc<AtomicBool>,
    /// Which computation saved sessions belong to.
    key: Option<CacheKey>,
    /// `None` once it has been joined.
    worker: Option<JoinHandle<Engine>>,
}

impl Serving {
    /// Starts the worker and clears the engine's context.
    ///
    /// # Panics
    /// If the system cannot start a thread.
    pub fn start(engine: Engine, options: ServingOptions) -> Self {
        let slots = options.slots.clamp(1, engine.slots());
        let facts = ModelFacts::of(&engine, slots as usize);
        let status = ServingStatus {
            slots: vec![SlotStatus::default(); slots as usize],
            epoch: engine.epoch(),
            store: engine.store_stats(),
            hot: engine.hot_totals(),
            quality: engine.budget_spent(),
            ..ServingStatus::default()
        };
        let queue = Arc::new(Queue::new(slots as usize, options.queue, status));
        let (model, interrupt) = (Arc::clone(engine.model()), engine.interrupt_flag());
        let (key, vision) = (engine.cache_key().cloned(), engine.vision().cloned());
        let (live, slots_limit) = (Arc::new(Live::of(&engine)), engine.slots_limit());
        let options = ServingOptions { slots, ..options };
        let worker = Worker::new(engine, Arc::clone(&queue), Arc::clone(&live), options);
        let worker = std::thread::Builder::new()
            .name("engine".into())
            .spawn(move || worker.run())
            .expect("a thread for the engine");
        Self { queue, model, vision, facts, live, slots_limit, interrupt, key, worker: Some(worker) }
    }

    /// Makes a job's sampler, on the caller's thread.
    ///
    /// # Errors
    /// [`Refused::Sampling`].
    pub fn prepare(&self, job: Job) -> Result<Prepared, Refused> {
        let make = || {
            let mut sampler = Sampler::new(&job.sampling, &self.model, self.facts.context)?;
            sampler.see(&job.prompt)?;
            Ok(sampler)
        };
        let sampler = make().map_err(Refused::Sampling)?;
        Ok(Prepared { job, sampler, background: false })
    }

    /// Adds a job to the queue without waiting. `sink` gets the job's events on the worker's thread
    /// for as long as the ticket is kept.
    ///
    /// # Errors
    /// [`Refused::Full`] and [`Refused::Stopped`]; the sink is not called then.
    pub fn submit(&self, job: Prepared, sink: Sink) -> Result<Ticket, Refused> {
        let standing = self.queue.submit(job, sink)?;
        Ok(Ticket::new(Arc::clone(&self.queue), standing))
    }

    /// Adds texts to embed to the queue without waiting. Dropping the ticket cancels the job.
    ///
    /// # Errors
    /// [`Refused::Full`] and [`Refused::Stopped`]; `done` is not called then.
    pub fn embed(&self, job: EmbedJob, done: EmbedDone) -> Result<Ticket, Refused> {
        let standing = self.queue.add_embed(job, done)?;
        Ok(Ticket::new(Arc::clone(&self.queue), standing))
    }

    /// Requests a reload of what changed ([`Engine::reload_changed`]) before the next batch.
    /// Requests are merged: all that were made before a try share its outcome. While a file is
    /// being written, the reload is tried again between batches, for about 3 s, and jobs go on.
    /// `done` is called on the worker's thread, or dropped if the worker ends.
    ///
    /// # Errors
    /// [`Refused::Full`] and [`Refused::Stopped`]; `done` is not called then.
    pub fn reload(&self, done: ReloadDone) -> Result<(), Refused> {
        self.reload_taking(Take::All, done)
    }

    /// As [`Serving::reload`], of the tensors that can be replaced
    /// ([`Engine::reload_taking`]). A request that is merged with one for all tensors is one for all.
    ///
    /// # Errors
    /// As [`Serving::reload`].
    pub fn reload_taking(&self, take: Take, done: ReloadDone) -> Result<(), Refused> {
        self.queue.reload(take, done)
    }

    /// Has a learn file applied ([`Engine::apply_learned`]) before the next batch, or at once if the
    /// worker is idle; several are applied in their order. `done` is called on the worker's thread,
    /// or dropped if the worker ends.
    ///
    /// # Errors
    /// [`Refused::Full`] and [`Refused::Stopped`]; `done` is not called then.
    pub fn apply(&self, file: LearnFile, done: ApplyDone) -> Result<(), Refused> {
        self.queue.apply(Apply { file, done })
    }

    /// Does something with a slot as soon as no job uses it. `done` is called on the worker's thread,
    /// or dropped if the worker ends.
    ///
    /// # Errors
    /// [`Refused::Full`] and [`Refused::Stopped`]; `done` is not called then.
    pub fn with_slot(&self, slot: usize, work: SlotWork, done: SlotDone) -> Result<(), Refused> {
        self.queue.add_task(SlotTask { slot, work, done })
    }

    /// Checks that a learn file can be of this model.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(&self, file: &LearnFile) -> Result<(), Misfit> {
        self.live.check(file)
    }

    /// The uses of experts since the load or the last [`Serving::report`], as of now, with times as
    /// of the last batch.
    pub fn reported(&self) -> LearnFile {
        self.live.report()
    }

    /// The report mode.
    pub fn mode(&self) -> Reported {
        self.live.mode()
    }

    /// Starts a new window for [`Serving::reported`], in which this is reported. With
    /// [`Reported::Off`], experts are not exchanged between tokens either, from the next batch on.
    pub fn report(&self, mode: Reported) {
        self.live.restart(mode);
    }

    /// The uses of experts by layer since the load, as of now.
    pub fn uses(&self) -> impl Iterator<Item = LayerUsage> {
        self.live.uses()
    }

    /// Expert residency and device counters, as of a recent batch.
    pub fn experts(&self) -> Arc<ExpertsSeen> {
        self.live.seen()
    }

    /// Current activity as of the last batch, and totals since the start.
    pub fn status(&self) -> ServingStatus {
        self.queue.status()
    }

    /// A handle that limits the memory of the weights' slots; `None` if nothing streams.
    pub const fn slots_limit(&self) -> Option<&SlotsLimit> {
        self.slots_limit.as_ref()
    }

    /// Which computation saved sessions belong to. `None` if sessions are not to be saved, or after a
    /// reload.
    pub fn cache_key(&self) -> Option<CacheKey> {
        self.key.clone().filter(|_| self.status().epoch == 0)
    }

    /// The facts that do not change.
    pub const fn facts(&self) -> &ModelFacts {
        &self.facts
    }

    /// As [`Engine::tokenize`], on the caller's thread, for as long as it is `wanted`.
    ///
    /// # Errors
    /// [`EngineError::Tokenize`].
    pub fn tokenize(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
        wanted: &(dyn Fn() -> bool + Sync),
    ) -> Result<Vec<i32>, EngineError> {
        tokenize(&self.model, text, add_special, parse_special, wanted)
    }

    /// As [`Engine::tokenize_prompt`], on the caller's thread, for as long as it is `wanted`.
    ///
    /// # Errors
    /// [`EngineError::TextTooLong`], [`EngineError::Tokenize`]; [`EngineError::Cancelled`] if it was
    /// not wanted any more.
    pub fn tokenize_prompt(
        &self,
        text: &str,
        add_special: bool,
        wanted: &(dyn Fn() -> bool + Sync),
    ) -> Result<Vec<i32>, EngineError> {
        let lengths = Some(self.facts.token_lengths);
        tokenize_prompt(&self.model, lengths, self.facts.context, text, add_special, wanted)
    }

    /// As [`Engine::read_prompt`], on the caller's thread, for as long as it is `wanted`.
    ///
    /// # Errors
    /// As [`Serving::tokenize_prompt`], and [`EngineError::Vision`].
    pub fn read_prompt(
        &self,
        text: &str,
        images: &Images,
        add_special: bool,
        wanted: &(dyn Fn() -> bool + Sync),
    ) -> Result<Prompted, EngineError> {
        if images.is_empty() {
            return Ok(self.tokenize_prompt(text, add_special, wanted)?.into());
        }
        let vision = self.vision.as_ref().ok_or(VisionError::NoProjector)?;
        let (lengths, context) = (self.facts.token_lengths, self.facts.context);
        let reading = Reading { model: &self.model, lengths, context, wanted };
        vision.prompt(&reading, text, images, add_special)
    }

    /// The bytes of tokens, including control tokens; numbers that are not tokens are ignored. The
    /// result may begin and end within a UTF-8 character.
    ///
    /// # Errors
    /// [`EngineError::Cxx`].
    pub fn detokenize(&self, tokens: &[i32]) -> Result<Vec<u8>, EngineError> {
        let mut text = Vec::new();
        for &token in tokens {
            if self.facts.has_token(token) {
                self.model.vocab().piece(Token(token), true, &mut text)?;
            }
        }
        Ok(text)
    }

    /// Returns whether the worker has ended by itself, which happens only after a panic.
    pub fn has_failed(&self) -> bool {
        self.worker.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the current computation and cancels all jobs. Returns the engine with an empty context.
    ///
    /// # Panics
    /// If the worker panicked.
    pub fn stop(mut self) -> Engine {
        match self.join().expect("the worker is joined once") {
            Ok(engine) => engine,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn join(&mut self) -> Option<std::thread::Result<Engine>> {
        let worker = self.worker.take()?;
        self.queue.stop();
        let before = self.interrupt.swap(true, Ordering::Relaxed);
        let result = worker.join();
        self.interrupt.store(before, Ordering::Relaxed);
        Some(result)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.join());
    }
}

#[cfg(test)]
use terrace_test_env as _;
