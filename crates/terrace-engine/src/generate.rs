//! Prompt in, tokens out: drives one session to its end. terrace-serving drives several by the same
//! steps.

use crate::answer::Answer;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::generation::{Generation, GenerationParams, Stop};
use crate::line_limits::LineLimits;
use crate::session::Session;
use crate::vision::{Media, Prompted};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};
use terrace_backend::PassKind;
use terrace_ggml::llama::{Batch, ContextError, Sampler, Sampling};

/// Interval at which a generation that waits for the writer of a file checks for interrupts.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Result of evaluating some of a session's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluated {
    /// Some tokens are left to evaluate.
    Part,
    /// All tokens are evaluated: the next one can be chosen.
    All,
    /// Nothing was evaluated because a file is being written. A reload is pending; after it, this
    /// can be tried again.
    Again,
    /// An interrupt ended it; nothing was evaluated.
    Interrupted,
}

/// End of a text, if the model does not end it before.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Maximum number of tokens; `None` means until the context is full.
    pub tokens: Option<usize>,
    /// Texts before which it ends.
    pub stop: Vec<String>,
}

impl From<Option<usize>> for Limits {
    fn from(tokens: Option<usize>) -> Self {
        Self { tokens, stop: Vec::new() }
    }
}

impl Engine {
    /// Evaluates `prompt` after the session's tokens and generates until the model ends or a limit
    /// is reached. `sink` gets each token's bytes as soon as it
    /// is chosen, and may stop the generation.
    ///
    /// # Errors
    /// [`EngineError::EmptyPrompt`] and [`EngineError::PromptTooLong`], before anything is
    /// evaluated. After a failed computation the session is as it was before the call.
    pub fn generate(
        &mut self,
        session: &mut Session,
        prompt: &[i32],
        limits: impl Into<Limits>,
        sampling: &Sampling,
        sink: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Answer, EngineError> {
        self.generate_after((prompt, &Media::default()), session, limits.into(), sampling, sink)
    }

    /// As [`Engine::generate`], for a prompt with images.
    ///
    /// # Errors
    /// As [`Engine::generate`], and [`EngineError::Vision`].
    pub fn generate_seeing(
        &mut self,
        session: &mut Session,
        prompt: &Prompted,
        limits: impl Into<Limits>,
        sampling: &Sampling,
        sink: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Answer, EngineError> {
        self.generate_after((&prompt.tokens, &prompt.media), session, limits.into(), sampling, sink)
    }

    /// Evaluates tokens after the session's, without choosing one: what is generated then begins at this depth.
    ///
    /// # Errors
    /// As [`Engine::generate`]; [`EngineError::Cancelled`] if it was.
    pub fn read_ahead(&mut self, session: &mut Session, tokens: &[i32]) -> Result<(), EngineError> {
        self.hand_to(session);
        let (used, context) = (session.tokens.len(), self.context_size());
        if used + tokens.len() > context {
            return Err(EngineError::PromptTooLong { prompt: tokens.len(), used, context });
        }
        session.append(tokens, &Media::default());
        let mut batch = Batch::default();
        loop {
            if self.is_interrupted() {
                return Err(EngineError::Cancelled);
            }
            match self.evaluate(session, &mut batch, usize::MAX, 0)? {
                Evaluated::Part => {}
                Evaluated::All => return Ok(()),
                Evaluated::Again => sleep(self.reload_wait().unwrap_or_default().min(POLL_INTERVAL)),
                Evaluated::Interrupted => return Err(EngineError::Cancelled),
            }
        }
    }

    fn generate_after(
        &mut self,
        prompt: (&[i32], &Media),
        session: &mut Session,
        limits: Limits,
        sampling: &Sampling,
        sink: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Answer, EngineError> {
        self.reload_if_asked();
        self.hand_to(session);
        let mut sampler = Sampler::new(sampling, &Arc::clone(self.model()), self.context_size())?;
        sampler.see(session.tokens())?;
        sampler.see(prompt.0)?;
        let min_tokens = sampling.min_tokens;
        let interrupt = self.interrupt_flag();
        let wanted = GenerationParams {
            n_max: limits.tokens,
            sampler,
            min_tokens,
            stop: limits.stop,
            lines: LineLimits::default(),
            probs: None,
            after_samplers: false,
            scored: false,
            ended: Box::new(move || interrupt.load(Ordering::Relaxed)),
        };
        self.answer(session, prompt, wanted, sink)
    }

    fn answer(
        &mut self,
        session: &mut Session,
        (prompt, media): (&[i32], &Media),
        wanted: GenerationParams,
        sink: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Answer, EngineError> {
        let before = session.tokens.len();
        if prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        if before + prompt.len() > self.context_size() {
            let (prompt, context) = (prompt.len(), self.context_size());
            return Err(EngineError::PromptTooLong { prompt, used: before, context });
        }
        session.append(prompt, media);
        let mut generation = Generation::new(session, prompt.len(), 0, wanted, Instant::now());
        let lossy = self.lossy_counts();
        let driven = self.drive(session, &mut generation, sink);
        self.save_learned();
        match driven {
            Ok(stop) => {
                let since = generation.store.zip(self.store_stats()).map(|(then, now)| now.since(&then));
                let lossy = self.lossy_since(lossy);
                let answer = Answer { decode: since, lossy, ..generation.end(session, stop, self.epoch()) };
                self.count_lengths(&answer);
                Ok(answer)
            }
            Err(error) => {
                let held = before.min(session.held);
                session.cut(self.context(), held);
                session.known = session.known.min(before);
                session.settle();
                Err(error)
            }
        }
    }

    /// Lets one session generate until it ends.
    fn drive(
        &mut self,
        session: &mut Session,
        generation: &mut Generation,
        sink: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Stop, EngineError> {
        let (mut batch, mut text) = (Batch::default(), Vec::new());
        let before = session.held;
        self.show_prompt(session, before);
        loop {
            if self.reload_if_asked() {
                generation.forget(session);
                self.hand_back_to(session);
            }
            if self.is_interrupted() {
                return Ok(Stop::CANCELLED);
            }
            let drafts = generation.left(session);
            match self.evaluate(session, &mut batch, usize::MAX, drafts)? {
                Evaluated::Part => {
                    self.show_prompt(session, before);
                    continue;
                }
                Evaluated::Again => {
                    // Interrupts are heeded meanwhile.
                    sleep(self.reload_wait().unwrap_or_default().min(POLL_INTERVAL));
                    continue;
                }
                Evaluated::Interrupted => return Ok(Stop::CANCELLED),
                Evaluated::All => {}
            }
            if generation.is_new() {
                self.show_prompt(session, before);
                generation.store = self.store_stats();
            }
            let mut next = Some(0);
            while let Some(row) = next {
                text.clear();
                let before = generation.generated(session);
                let chosen = generation.choose(self, session, row, &mut text);
                next = if matches!(chosen, Ok(None)) { session.confirm() } else { None };
                if next.is_none() {
                    self.settle_drafts(session, !matches!(chosen, Ok(None)));
                }
                if generation.generated(session) > before && sink(&text).is_break() {
                    self.settle_drafts(session, true);
                    return Ok(Stop::CANCELLED);
                }
                if let Some(stop) = chosen? {
                    return Ok(stop);
                }
            }
        }
    }

    /// Evaluates the next tokens of a session, as many as one graph takes, but at most `most`; if that is
    /// the token chosen last, with up to `drafts` drafts after it. If that fails, the session holds what
    /// it held before, or nothing if its memory cannot be cut back.
    pub fn evaluate(
        &mut self,
        session: &mut Session,
        batch: &mut Batch,
        most: usize,
        drafts: usize,
    ) -> Result<Evaluated, EngineError> {
        if self.awaits_writer() {
            return Ok(Evaluated::Again);
        }
        self.check_files()?;
        self.use_scales(&session.scales);
        let most_rows = if session.wants_scores() { self.prepare_scores() } else { usize::MAX };
        let ubatch = self.plan().ubatch as usize;
        // What sees itself in both directions is one graph, however long others wait.
        let whole = session.is_at_image() && self.reads_at_once();
        let n = session.next(if whole { ubatch } else { most.min(most_rows).min(ubatch) });
        let chosen = !session.wants_prefill();
        if chosen {
            self.propose(session, drafts);
        }
        batch.clear();
        let begun = Instant::now();
        let decoded = if session.is_at_image() {
            self.evaluate_image(session, n)?
        } else {
            session.add_to(batch, n);
            self.compute_alone(if chosen { batch.len() } else { 0 });
            let kind = match (chosen, batch.len()) {
                (false, _) => PassKind::Prefill,
                (true, 1) => PassKind::Decode,
                (true, _) => PassKind::DraftCheck,
            };
            let decoded = self.decode(batch, kind);
            self.compute_alone(0);
            decoded
        };
        if chosen && decoded.is_ok() && self.take_back(session) {
            return self.evaluate(session, batch, most, 0);
        }
        let Err(error) = decoded else {
            let took = begun.elapsed();
            self.show_pass(session, n);
            session.evaluated(n, self.epoch());
            if chosen {
                self.note_pass(batch.len(), took);
            }
            self.reloads().cut_short = 0;
            return Ok(if session.is_evaluated() { Evaluated::All } else { Evaluated::Part });
        };
        session.drafts.clear();
        let held = session.media.whole(session.held);
        let whole = session.cut(self.context(), held) == held;
        match error {
            error if whole && self.is_being_written(&error) => Ok(Evaluated::Again),
            ContextError::Interrupted => Ok(Evaluated::Interrupted),
            error => Err(error.into()),
        }
    }
}
