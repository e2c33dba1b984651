//! Answers several callers with one model: a worker thread owns the engine, callers leave jobs and are told what becomes of them.
//! A caller keeps a [`Ticket`] for as long as it wants the answer.
//!
//! The context has a sequence of its own for each *slot* ([`ContextOptions::sequences`](crate::options::ContextOptions::sequences)(crate::Options::sequences), not
//! [`ContextOptions::unified`](crate::options::ContextOptions::unified)(crate::Options::unified)), and a slot works on one job at a time. The worker goes round: a token of each
//! job that generates, then at most one graph's tokens of one prompt, so that a long prompt does not keep the others from
//! going on. What a slot computes is, bit for bit, what [`Engine::generate`] computes alone in a context of that size.
//!
//! An idle slot keeps what it holds, and a job may go on from there ([`Job::reuse`]). When tensors are replaced, which happens
//! between two batches, what all slots hold is forgotten and, where a job needs it, evaluated again, or kept, as
//! [`OnReload`](crate::OnReload) says.

mod facts;
mod job;
mod queue;
mod reuse;
mod rounds;
mod slot;
mod status;
mod ticket;
mod worker;

pub use facts::ModelFacts;
pub use job::{Event, Job, Prompt, Refused, Sink};
pub use queue::ReloadDone;
pub use status::{Ended, ServingStatus, SlotState, SlotStatus, Totals};
pub use ticket::Ticket;

use crate::engine::{Engine, tokenize};
use crate::error::EngineError;
use queue::Queue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use terrace_ggml::llama::{Model, Token};
use worker::Worker;

/// How jobs share the engine.
#[derive(Clone, Copy, Debug)]
pub struct ServingOptions {
    /// Jobs that are answered at the same time: at least one, and at most as many as the engine has sequences with a context
    /// of their own ([`ContextOptions::sequences`](crate::options::ContextOptions::sequences)(crate::Options::sequences) without
    /// [`ContextOptions::unified`](crate::options::ContextOptions::unified)(crate::Options::unified)).
    pub slots: u32,
    /// Jobs that may wait while all slots are taken.
    pub queue: usize,
    /// Whether the tokens of all generating slots are computed together: of a streamed model, experts that several want are
    /// then read once. ggml rounds otherwise in a batch than alone, so an answer may depend on what is computed beside it.
    pub batch_slots: bool,
}

/// A worker that answers jobs, as its callers see it.
pub struct Serving {
    queue: Arc<Queue>,
    model: Arc<Model>,
    facts: ModelFacts,
    interrupt: Arc<AtomicBool>,
    /// Until it has been joined.
    worker: Option<JoinHandle<Engine>>,
}

impl Serving {
    /// Starts the worker. What the engine's context held is forgotten.
    ///
    /// # Panics
    /// If the system has no thread left.
    pub fn start(engine: Engine, options: ServingOptions) -> Self {
        let slots = options.slots.clamp(1, engine.slots());
        let facts = ModelFacts::of(&engine, slots as usize);
        let status = ServingStatus {
            slots: vec![SlotStatus::default(); slots as usize],
            epoch: engine.epoch(),
            store: engine.store_stats(),
            hot: engine.hot_totals(),
            ..ServingStatus::default()
        };
        let queue = Arc::new(Queue::new(slots as usize, options.queue, status));
        let (model, interrupt) = (Arc::clone(engine.model()), engine.interrupt_flag());
        let worker = Worker::new(engine, Arc::clone(&queue), slots, options.batch_slots);
        let worker = std::thread::Builder::new()
            .name("engine".into())
            .spawn(move || worker.run())
            .expect("a thread for the engine");
        Self { queue, model, facts, interrupt, worker: Some(worker) }
    }

    /// Adds a job to the queue, and never waits. Events are given to `sink` on the worker's thread for as long as the ticket is
    /// kept.
    ///
    /// # Errors
    /// [`Refused::Full`] and [`Refused::Stopped`]; nothing is told to the sink then.
    pub fn submit(&self, job: Job, sink: Sink) -> Result<Ticket, Refused> {
        let standing = self.queue.submit(job, sink)?;
        Ok(Ticket::new(Arc::clone(&self.queue), standing))
    }

    /// Looks for changed tensors before the next batch ([`Engine::reload_changed`]); `done` is called on the worker's thread,
    /// or dropped if the worker has ended.
    pub fn reload(&self, done: ReloadDone) {
        drop(self.queue.reload(done));
    }

    /// What is being done, as of the last batch, and what was done since the start.
    pub fn status(&self) -> ServingStatus {
        self.queue.status()
    }

    /// What does not change.
    pub const fn facts(&self) -> &ModelFacts {
        &self.facts
    }

    /// As [`Engine::tokenize`], on the caller's thread.
    ///
    /// # Errors
    /// [`EngineError::Tokenize`].
    pub fn tokenize(
        &self,
        text: &str,
        add_special: bool,
        parse_special: bool,
    ) -> Result<Vec<i32>, EngineError> {
        tokenize(&self.model, text, add_special, parse_special)
    }

    /// The bytes that tokens stand for, control tokens included; of numbers that are no tokens, none. It may begin and end within
    /// a UTF-8 character.
    pub fn detokenize(&self, tokens: &[i32]) -> Vec<u8> {
        let mut text = Vec::new();
        for &token in tokens {
            if self.facts.has_token(token) {
                self.model.vocab().piece(Token(token), true, &mut text);
            }
        }
        text
    }

    /// Whether the worker has ended by itself, which it does by a panic alone.
    pub fn has_failed(&self) -> bool {
        self.worker.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends what is being computed, and with it all jobs, as cancelled; gives the engine back with an empty context.
    ///
    /// # Panics
    /// If the worker has.
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
