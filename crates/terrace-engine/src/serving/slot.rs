//! A slot: a sequence of the context, what it holds, and the job in it.

use super::inbox::Request;
use super::job::{Answer, Sink};
use super::status::{SlotState, SlotStatus};
use super::stops::Stops;
use crate::generate::{StopReason, Timings};
use std::time::Instant;
use terrace_ggml::llama::{Batch, Sampler, Token};

/// A sequence of the context.
pub struct Slot {
    pub sequence: u32,
    /// Tokens of the job that it works on, or worked on last: those that it holds first, then those to be evaluated.
    pub tokens: Vec<i32>,
    /// Of these, how many have keys and values in the context.
    pub held: usize,
    /// Up to here tokens are evaluated in batches, behind it one by one.
    pub batched: usize,
    /// The epoch that the oldest keys and values are of.
    pub epoch: u64,
    /// When a job was last here, as a number that grows with each.
    pub used: u64,
    pub work: Option<Work>,
}

/// A job in a slot.
pub struct Work {
    pub sink: Sink,
    pub sampler: Sampler,
    pub stops: Stops,
    /// As the caller gave them.
    pub stop_strings: Vec<String>,
    pub n_max: Option<usize>,
    pub prompt: usize,
    pub reused: usize,
    /// The epoch behind the first token and at the last, from the first token on.
    pub epochs: Option<(u64, u64)>,
    submitted: Instant,
    begun: Instant,
    /// When the prompt was evaluated.
    pub evaluated: Option<Instant>,
    /// When the first token was chosen.
    pub first: Option<Instant>,
}

impl Slot {
    pub fn new(sequence: u32) -> Self {
        Self { sequence, tokens: Vec::new(), held: 0, batched: 0, epoch: 0, used: 0, work: None }
    }

    /// Puts a job into it, whose first `reused` tokens are held.
    pub fn begin(&mut self, request: Request, reused: usize, used: u64) {
        let Request { job, sink, submitted } = request;
        let prompt = job.prompt.len();
        (self.tokens, self.held, self.batched, self.used) = (job.prompt, reused, prompt, used);
        self.work = Some(Work {
            sink,
            sampler: Sampler::new(&job.sampling),
            stops: Stops::new(&job.stop),
            stop_strings: job.stop,
            n_max: job.n_max,
            prompt,
            reused,
            epochs: None,
            submitted,
            begun: Instant::now(),
            evaluated: None,
            first: None,
        });
    }

    /// Whether a job may be put into it.
    pub const fn is_idle(&self) -> bool {
        self.work.is_none()
    }

    /// Whether tokens are to be evaluated in batches.
    pub const fn wants_prefill(&self) -> bool {
        self.work.is_some() && self.held < self.batched
    }

    /// Whether a job is in it that has no token yet.
    pub fn is_new(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.epochs.is_none())
    }

    /// Whether the token chosen last is to be evaluated.
    pub const fn wants_decode(&self) -> bool {
        self.work.is_some() && self.held >= self.batched
    }

    /// How many of a prompt's first tokens are those that it holds.
    pub fn common(&self, prompt: &[i32]) -> usize {
        self.tokens[..self.held].iter().zip(prompt).take_while(|(held, token)| held == token).count()
    }

    /// Adds the next `n` tokens to a batch; logits are wanted of the last one if nothing is left to evaluate behind it.
    pub fn add_to(&self, batch: &mut Batch, n: usize) {
        for (place, &token) in self.tokens.iter().enumerate().skip(self.held).take(n) {
            let position = u32::try_from(place).expect("within the context");
            batch.push(Token(token), position, [self.sequence], place + 1 == self.tokens.len());
        }
    }

    /// Its next `n` tokens were evaluated, by the model as it is in `epoch`.
    pub fn evaluated(&mut self, n: usize, epoch: u64) {
        if self.held == 0 {
            self.epoch = epoch;
        }
        self.held += n;
    }

    /// What it holds is gone, and has to be evaluated again where a job needs it. How much that is.
    pub fn forget(&mut self) -> usize {
        let lost = std::mem::take(&mut self.held);
        let Some(work) = &mut self.work else {
            self.tokens.clear();
            return 0;
        };
        // As `Engine::generate` does it: what was held in batches, then the token that was chosen last.
        let chosen = self.tokens.len() > work.prompt;
        self.batched = self.tokens.len() - usize::from(chosen);
        if chosen { lost } else { lost - std::mem::take(&mut work.reused) }
    }

    /// Takes the job out; what it leaves may serve the next one.
    pub fn end(&mut self) -> Option<(Work, Vec<i32>)> {
        let work = self.work.take()?;
        let generated = self.tokens[work.prompt..].to_vec();
        self.tokens.truncate(self.held);
        Some((work, generated))
    }

    /// For [`ServingStatus`](super::ServingStatus).
    pub fn status(&self) -> SlotStatus {
        let state = match &self.work {
            None => SlotState::Idle,
            Some(_) if self.wants_prefill() => SlotState::Prefill,
            Some(_) => SlotState::Decode,
        };
        let prompt = self.work.as_ref().map_or(0, |work| work.prompt);
        let generated = self.work.as_ref().map_or(0, |work| self.tokens.len() - work.prompt);
        SlotStatus { state, held: self.held, epoch: (self.held > 0).then_some(self.epoch), prompt, generated }
    }
}

impl Work {
    /// How it ended.
    pub fn answer(
        &self,
        tokens: Vec<i32>,
        stop: StopReason,
        stop_string: Option<String>,
        epoch: u64,
    ) -> Answer {
        let now = Instant::now();
        let ms = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1e3;
        let per_second = |n: usize, ms: f64| if n > 0 && ms > 0.0 { n as f64 * 1000.0 / ms } else { 0.0 };
        let prompt_ms = ms(self.begun, self.evaluated.unwrap_or(now));
        let decode_ms = self.first.map_or(0.0, |first| ms(first, now));
        Answer {
            timings: Timings {
                prompt_ms,
                decode_ms,
                ttft_ms: self.first.map_or(0.0, |first| ms(self.submitted, first)),
                prompt_tps: per_second(self.prompt - self.reused, prompt_ms),
                decode_tps: per_second(tokens.len().saturating_sub(1), decode_ms),
            },
            tokens,
            stop,
            stop_string,
            prompt_tokens: self.prompt,
            reused: self.reused,
            queued_ms: ms(self.submitted, self.begun),
            epochs: self.epochs.unwrap_or((epoch, epoch)),
        }
    }
}
