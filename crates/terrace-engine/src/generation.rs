//! An answer being generated: chooses the next token, and decides whether it is the last.

use crate::answer::{Answer, StopReason, Timings};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::line_limits::{LineLimits, Lines};
use crate::session::Session;
use crate::stops::Stops;
use crate::token_probs::{PromptProbs, TokenProbs};
use std::sync::Arc;
use std::time::Instant;
use terrace_ggml::llama::{Sampler, Token};
use terrace_ggml::{CxxError, Excess};
use terrace_store::StoreStats;

/// The parameters of a generation, apart from the prompt.
pub struct GenerationParams {
    /// Maximum number of tokens to generate.
    pub n_max: Option<usize>,
    /// Chooses each token.
    pub sampler: Sampler,
    /// The text does not end before as many tokens.
    pub min_tokens: usize,
    pub stop: Vec<String>,
    /// Lines that end the text.
    pub lines: LineLimits,
    /// Number of tokens that are reported with their probabilities beside each chosen one; `None`: not
    /// even that one.
    pub probs: Option<usize>,
    /// True if these probabilities are those after the samplers.
    pub after_samplers: bool,
    /// True if the prompt's tokens are reported as well, and with them the one that ends the text.
    pub scored: bool,
    /// Set once nobody waits for the response any more.
    pub ended: Abandoned,
}

/// Tells from any thread whether nobody waits for an answer any more.
pub type Abandoned = Box<dyn Fn() -> bool + Send>;

/// Why a generation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    reason: StopReason,
    /// Index of the stop string.
    string: Option<usize>,
}

impl Stop {
    /// The caller or an interrupt ended it.
    pub const CANCELLED: Self = Self::of(StopReason::Cancelled);

    const fn of(reason: StopReason) -> Self {
        Self { reason, string: None }
    }

    /// The reason for the caller.
    pub const fn reason(self) -> StopReason {
        self.reason
    }
}

/// An answer being generated at the end of a session.
pub struct Generation {
    sampler: Sampler,
    ended: Abandoned,
    min_tokens: usize,
    probs: Option<usize>,
    after_samplers: bool,
    /// Reported tokens.
    reported: Vec<TokenProbs>,
    /// True if the prompt's tokens are reported, too; `scores` has them so far.
    scored: bool,
    scores: Vec<TokenProbs>,
    lines: Lines,
    stops: Stops,
    /// The stop strings as the caller gave them.
    stop_strings: Vec<String>,
    n_max: Option<usize>,
    /// Number of prompt tokens, and how many of them need not be evaluated.
    prompt: usize,
    reused: usize,
    /// Index of the first generated token in the session.
    start: usize,
    /// All text that was sent.
    text: Vec<u8>,
    /// Reused buffer for a token's text.
    piece: Vec<u8>,
    /// The epochs of the first and the last token; `None` before the first one.
    epochs: Option<(u64, u64)>,
    /// Store counters at the end of the prompt's evaluation, if the caller wants them.
    pub store: Option<StoreStats>,
    submitted: Instant,
    begun: Instant,
    /// When the prompt was evaluated.
    evaluated: Option<Instant>,
    /// When the first token was chosen.
    first: Option<Instant>,
    /// Tokens chosen, with one that ended the text; and passes that they took.
    chosen: usize,
    passes: usize,
    /// Drafts that were checked, and those that were chosen.
    drafted: usize,
    accepted: usize,
}

impl Generation {
    /// Starts after a session's tokens, of which the last `prompt` are the prompt; `reused` of
    /// those are already held.
    pub fn new(
        session: &Session,
        prompt: usize,
        reused: usize,
        wanted: GenerationParams,
        submitted: Instant,
    ) -> Self {
        Self {
            sampler: wanted.sampler,
            ended: wanted.ended,
            min_tokens: wanted.min_tokens,
            probs: wanted.probs,
            after_samplers: wanted.after_samplers,
            reported: Vec::new(),
            scored: wanted.scored,
            scores: Vec::new(),
            lines: Lines::new(wanted.lines),
            stops: Stops::new(&wanted.stop),
            stop_strings: wanted.stop,
            n_max: wanted.n_max,
            prompt,
            reused,
            start: session.tokens.len(),
            text: Vec::new(),
            piece: Vec::new(),
            epochs: None,
            store: None,
            submitted,
            begun: Instant::now(),
            evaluated: None,
            first: None,
            chosen: 0,
            passes: 0,
            drafted: 0,
            accepted: 0,
        }
    }

    /// Tokens of the prompt.
    pub const fn prompt(&self) -> usize {
        self.prompt
    }

    /// Prompt tokens that were not evaluated.
    pub const fn reused(&self) -> usize {
        self.reused
    }

    /// Notes that this many tokens of the prompt need not be evaluated after all.
    pub const fn reuse(&mut self, tokens: usize) {
        self.reused = tokens;
    }

    /// Number of tokens generated so far.
    pub fn generated(&self, session: &Session) -> usize {
        session.tokens.len() - self.start
    }

    /// Number of tokens that may be generated after the next one.
    pub fn left(&self, session: &Session) -> usize {
        self.n_max.map_or(usize::MAX, |most| most.saturating_sub(self.generated(session) + 1))
    }

    /// Returns true if the prompt has not been evaluated yet.
    pub const fn is_new(&self) -> bool {
        self.evaluated.is_none()
    }

    /// Notes that its session's keys and values are gone and have to be evaluated again. Returns
    /// the number of such tokens, not counting reused ones that were never evaluated.
    pub fn forget(&mut self, session: &mut Session) -> usize {
        // What was held is evaluated in batches, then the token chosen last on its own.
        self.scores.clear();
        let chosen = self.generated(session).min(1);
        let lost = session.forget(chosen);
        if chosen > 0 { lost } else { lost - std::mem::take(&mut self.reused).min(lost) }
    }

    /// Takes the probabilities of the prompt's tokens that follow those that the last pass has evaluated,
    /// which were held from `before` on. Returns all of them after the last pass.
    ///
    /// # Errors
    /// [`EngineError::Cxx`].
    pub fn score(
        &mut self,
        engine: &mut Engine,
        session: &mut Session,
        before: usize,
    ) -> Result<Option<PromptProbs>, EngineError> {
        let (top, begin) = (self.probs.unwrap_or(0), self.start - self.prompt);
        let next = &session.tokens[before + 1..(session.held + 1).min(self.start)];
        if self.scores.is_empty() {
            self.scores.reserve_exact(self.prompt - 1);
        }
        let (model, threads) = (Arc::clone(engine.model()), engine.plan().threads);
        let rows = engine.context().outputs();
        TokenProbs::of_rows(rows, next, top, (model.vocab(), threads), &mut self.scores)?;
        if session.held < self.start {
            return Ok(None);
        }
        session.scored = 0;
        let mut first = Vec::new();
        engine.vocab().piece(Token(session.tokens[begin]), true, &mut first)?;
        Ok(Some(PromptProbs { first, rest: std::mem::take(&mut self.scores) }))
    }

    /// Chooses a token and appends it to the session. `row` 0 is the row of logits of the session's last
    /// token, and later ones are those of its drafts. `text` gets the bytes that no stop string can still take back. Returns the
    /// reason if generation ends here.
    ///
    /// # Errors
    /// [`EngineError::Cxx`], [`EngineError::Grammar`], [`EngineError::Unfollowable`].
    pub fn choose(
        &mut self,
        engine: &mut Engine,
        session: &mut Session,
        row: usize,
        text: &mut Vec<u8>,
    ) -> Result<Option<Stop>, EngineError> {
        let epoch = engine.epoch();
        self.epochs = Some((self.epochs.map_or(session.epoch, |(first, _)| first), epoch));
        self.evaluated.get_or_insert_with(Instant::now);
        if self.n_max == Some(0) {
            return Ok(Some(Stop::of(StopReason::Length)));
        }
        let logits = session.row + row;
        if self.chosen < self.min_tokens {
            forbid_ends(engine, logits);
        }
        let token = match self.sampler.sample_row(engine.context(), logits, &self.ended) {
            Ok(token) => token,
            Err(CxxError::Excess(Excess::Ended)) => return Ok(Some(Stop::CANCELLED)),
            Err(CxxError::Excess(excess)) => return Err(EngineError::Grammar(excess)),
            Err(thrown @ CxxError::Exception(_)) if self.sampler.is_constrained() => {
                return Err(EngineError::Unfollowable(thrown));
            }
            Err(error) => return Err(error.into()),
        };
        self.first.get_or_insert_with(Instant::now);
        self.chosen += 1;
        match row {
            0 => (self.passes, self.drafted) = (self.passes + 1, self.drafted + session.drafts.len()),
            _ => self.accepted += 1,
        }
        let before = text.len();
        let ends = engine.vocab().is_end(token);
        // With a prompt's tokens there is one for each that was asked for: clients count from the end.
        if let Some(top) = self.probs.filter(|_| !ends || self.scored) {
            self.reported.push(match self.after_samplers {
                true => TokenProbs::left(self.sampler.candidates(token, top)?, token, engine.vocab())?,
                false => {
                    let model = Arc::clone(engine.model());
                    TokenProbs::of(engine.context().row(logits), token.0, top, model.vocab())?
                }
            });
        }
        let stop = if ends {
            Some(Stop::of(StopReason::EndOfText))
        } else {
            session.tokens.push(token.0);
            self.piece.clear();
            engine.vocab().piece(token, false, &mut self.piece)?;
            let line = self.lines.push(&self.piece);
            self.piece.truncate(line.unwrap_or(usize::MAX));
            if let Some(string) = self.stops.push(&self.piece, text) {
                Some(Stop { reason: StopReason::StopString, string: Some(string) })
            } else if line.is_some() || self.n_max == Some(self.generated(session)) {
                Some(Stop::of(StopReason::Length))
            } else if session.held == engine.context_size() {
                Some(Stop::of(StopReason::ContextFull))
            } else {
                None
            }
        };
        self.text.extend_from_slice(&text[before..]);
        if let Some(stop) = stop {
            self.release(stop, text);
        }
        Ok(stop)
    }

    /// Reports of the first tokens after `from`.
    pub fn reported(&self, from: usize) -> &[TokenProbs] {
        self.reported.get(from..).unwrap_or_default()
    }

    /// Ends the text: bytes that were held back are released, unless they are the stop string.
    pub fn release(&mut self, stop: Stop, text: &mut Vec<u8>) {
        if stop.string.is_none() {
            let before = text.len();
            self.stops.rest(text);
            self.text.extend_from_slice(&text[before..]);
        }
    }

    /// Ends the generation and returns the answer. The session keeps what was evaluated.
    pub fn end(mut self, session: &mut Session, stop: Stop, epoch: u64) -> Answer {
        let now = Instant::now();
        let ms = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1e3;
        let per_second = |n: usize, ms: f64| if n > 0 && ms > 0.0 { n as f64 * 1000.0 / ms } else { 0.0 };
        let tokens = session.tokens[self.start..].to_vec();
        session.settle();
        let prompt_ms = ms(self.begun, self.evaluated.unwrap_or(now));
        let decode_ms = self.first.map_or(0.0, |first| ms(first, now));
        // The first token comes with the prompt; the one that ends the text is computed as well.
        let (decoded, decode_passes) = (self.chosen.saturating_sub(1), self.passes.saturating_sub(1));
        Answer {
            timings: Timings {
                prompt_ms,
                decode_ms,
                ttft_ms: self.first.map_or(0.0, |first| ms(self.submitted, first)),
                prompt_tps: per_second(self.prompt - self.reused, prompt_ms),
                decode_tps: per_second(decoded, decode_ms),
                decode_passes,
                drafted: self.drafted,
                accepted: self.accepted,
            },
            tokens,
            probs: self.reported,
            text: self.text,
            stop: stop.reason,
            stop_string: stop.string.map(|place| self.stop_strings.swap_remove(place)),
            prompt_tokens: self.prompt,
            reused: self.reused,
            queued_ms: ms(self.submitted, self.begun),
            epochs: self.epochs.unwrap_or((epoch, epoch)),
            decode: None,
            experts: None,
            lossy: None,
        }
    }
}

/// Makes all tokens that end the text impossible in a row of logits.
fn forbid_ends(engine: &mut Engine, row: usize) {
    let model = Arc::clone(engine.model());
    let vocab = model.vocab();
    for (token, logit) in (0..).zip(engine.context().row_mut(row)) {
        if vocab.is_end(Token(token)) {
            *logit = f32::NEG_INFINITY;
        }
    }
}
