//! A slot: a session, and the job in it.

use super::job::{Job, Prepared, Sink};
use super::queue::Request;
use super::standing::Standing;
use super::status::{SlotState, SlotStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_backend::LossyCounts;
use terrace_engine::Session;
use terrace_engine::steps::{Generation, GenerationParams, Mark};
use terrace_ggml::llama::State;

/// A session, and the job that uses it.
pub struct Slot {
    /// The tokens of the current job, or of the last one.
    pub session: Session,
    /// The number of the last job that used the slot; jobs are numbered in order.
    pub used: u64,
    pub work: Option<Work>,
    /// True if the job waits for the pending reload, because a file is being written.
    pub stalled: bool,
    /// True if the job rests while others come first.
    pub resting: bool,
    /// True if its contents were offered to the files of kept conversations.
    pub offered: bool,
    /// The state after the session's first tokens, for models whose state cannot be truncated.
    pub checkpoint: Option<State>,
}

/// A job in a slot.
pub struct Work {
    pub sink: Sink,
    /// True if tokens are told as soon as they are chosen.
    pub tokens: bool,
    /// True if it may begin with what is held of other prompts.
    pub reuses: bool,
    /// True if other jobs come first.
    pub background: bool,
    pub generation: Generation,
    pub standing: Arc<Standing>,
    /// The counters of experts when the job began; `None` if there are none.
    pub mark: Option<Mark>,
    /// Lossy counts when the job began.
    pub lost: LossyCounts,
}

impl Slot {
    pub fn new(sequence: u32) -> Self {
        Self {
            session: Session::new(sequence),
            used: 0,
            work: None,
            stalled: false,
            resting: false,
            offered: false,
            checkpoint: None,
        }
    }

    /// Puts a job into the slot, which already holds the job's first `reused` tokens.
    pub fn begin(
        &mut self,
        request: Request,
        reused: usize,
        used: u64,
        mark: Option<Mark>,
        lost: LossyCounts,
        interrupt: Arc<AtomicBool>,
    ) {
        let Request { job: Prepared { job, sampler, background }, sink, submitted, standing } = request;
        let (scores, reuses) = (job.scores(), job.reuses());
        let Job {
            prompt,
            n_max,
            stop,
            lines,
            probs,
            after_samplers,
            tokens,
            scored: _,
            sampling,
            scales,
            reuse: _,
            slot: _,
        } = job;
        let min_tokens = sampling.min_tokens;
        self.session.put(prompt.into_prompted(), reused);
        let prompt = self.session.tokens().len();
        self.session.scales = scales;
        self.session.scored = if scores { prompt } else { 0 };
        let caller = Arc::clone(&standing);
        let ended = Box::new(move || caller.has_left() || interrupt.load(Ordering::Relaxed));
        let scored = scores;
        let wanted = GenerationParams {
            n_max,
            sampler,
            min_tokens,
            stop,
            lines,
            probs,
            after_samplers,
            scored,
            ended,
        };
        let generation = Generation::new(&self.session, prompt, reused, wanted, submitted);
        self.offered = false;
        (self.used, self.work) =
            (used, Some(Work { sink, tokens, reuses, background, generation, standing, mark, lost }));
    }

    /// Returns whether a job may be put into it.
    pub const fn is_idle(&self) -> bool {
        self.work.is_none()
    }

    /// Returns whether it has a job that goes on.
    const fn works(&self) -> bool {
        self.work.is_some() && !self.stalled && !self.resting
    }

    /// Returns whether it has a job that others do not come before.
    pub fn is_first(&self) -> bool {
        self.work.as_ref().is_some_and(|work| !work.background)
    }

    /// Returns whether tokens have to be evaluated in batches.
    pub const fn wants_prefill(&self) -> bool {
        self.works() && self.session.wants_prefill()
    }

    /// Returns whether the token chosen last has to be evaluated.
    pub const fn wants_decode(&self) -> bool {
        self.works() && !self.session.wants_prefill()
    }

    /// Returns whether it has a job without a generated token yet.
    pub fn is_new(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.generation.is_new())
    }

    /// Notes that its keys and values are gone, and have to be evaluated again if a job needs them.
    /// Returns the number of such tokens.
    pub fn forget(&mut self) -> usize {
        match &mut self.work {
            Some(work) => work.generation.forget(&mut self.session),
            None => {
                self.session.clear();
                0
            }
        }
    }

    /// The slot's part of [`ServingStatus`](super::ServingStatus).
    pub fn status(&self) -> SlotStatus {
        let state = match &self.work {
            None => SlotState::Idle,
            Some(_) if self.session.wants_prefill() => SlotState::Prefill,
            Some(_) => SlotState::Decode,
        };
        let session = &self.session;
        let generation = self.work.as_ref().map(|work| &work.generation);
        SlotStatus {
            state,
            held: session.held,
            epoch: (session.held > 0).then_some(session.epoch),
            prompt: generation.map_or(0, Generation::prompt),
            generated: generation.map_or(0, |generation| generation.generated(session)),
        }
    }
}
