//! Prompt in, tokens out.

use crate::engine::Engine;
use crate::error::EngineError;
use serde::Serialize;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Instant;
use terrace_ggml::llama::{ContextError, Sampler, Sampling, Token};
use terrace_store::StoreStats;

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model said so.
    EndOfText,
    /// As many tokens as asked for.
    Length,
    /// One of a [job](crate::serving::Job)'s stop strings.
    StopString,
    /// The caller or an interrupt.
    Cancelled,
    /// No room for another token.
    ContextFull,
}

/// How long it took, in milliseconds and tokens per second.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Timings {
    /// Evaluating the prompt.
    pub prompt_ms: f64,
    /// Generating, from the first token to the last.
    pub decode_ms: f64,
    /// From the call to the first token.
    pub ttft_ms: f64,
    /// Prompt tokens per second.
    pub prompt_tps: f64,
    /// Generated tokens per second, the first not counted: it comes with the prompt.
    pub decode_tps: f64,
}

/// What was generated.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The tokens, without the one that ended it.
    pub tokens: Vec<i32>,
    /// Their bytes; UTF-8 unless it ends within a character.
    pub text: Vec<u8>,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Why it ended.
    pub stop: StopReason,
    /// How long it took.
    pub timings: Timings,
    /// The model's epoch at the first token and at the last: other tokens of a generation may be of tensors that were
    /// replaced in between.
    pub epochs: (u64, u64),
    /// What the store did from the first token to the last; none in stock runs.
    pub decode: Option<StoreStats>,
}

impl Engine {
    /// Evaluates `prompt` behind what the context holds and generates up to `n_max` tokens (none: until the model
    /// ends or the context is full). `sink` gets each token's bytes as soon as it is chosen, and may stop it.
    ///
    /// # Errors
    /// Before anything is evaluated: [`EngineError::EmptyPrompt`], [`EngineError::PromptTooLong`]. After a failed
    /// computation the context holds what it held before the call.
    pub fn generate(
        &mut self,
        prompt: &[i32],
        n_max: Option<usize>,
        sampling: &Sampling,
        sink: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Generation, EngineError> {
        self.reload_if_asked()?;
        let before = self.position();
        if prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        if before + prompt.len() > self.context_size() {
            let (prompt, context) = (prompt.len(), self.context_size());
            return Err(EngineError::PromptTooLong { prompt, used: before, context });
        }
        let result = self.generate_inner(prompt, n_max, sampling, sink);
        if result.is_err() {
            self.rewind(before);
        }
        result
    }

    fn generate_inner(
        &mut self,
        prompt: &[i32],
        n_max: Option<usize>,
        sampling: &Sampling,
        sink: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Generation, EngineError> {
        let begin = Instant::now();
        let mut generation = Generation {
            tokens: Vec::new(),
            text: Vec::new(),
            prompt_tokens: prompt.len(),
            stop: StopReason::Length,
            timings: Timings::default(),
            epochs: (0, 0),
            decode: None,
        };
        if !self.evaluate(prompt.iter().map(|&t| Token(t)).collect())? {
            generation.stop = StopReason::Cancelled;
            return Ok(generation);
        }
        generation.epochs = (self.epoch(), self.epoch());
        let prompt_time = begin.elapsed();
        let at_prompt = self.store_stats();
        let mut sampler = Sampler::new(sampling);
        let mut first = None;
        let mut piece = Vec::new();
        while n_max.is_none_or(|n| generation.tokens.len() < n) {
            let token = sampler.sample(self.context());
            first.get_or_insert_with(Instant::now);
            if self.vocab().is_end(token) {
                generation.stop = StopReason::EndOfText;
                break;
            }
            generation.tokens.push(token.0);
            piece.clear();
            self.vocab().piece(token, false, &mut piece);
            generation.text.extend_from_slice(&piece);
            if sink(&piece).is_break() || self.interrupt_flag().load(Ordering::Relaxed) {
                generation.stop = StopReason::Cancelled;
                break;
            }
            if n_max.is_some_and(|n| generation.tokens.len() >= n) {
                break;
            }
            if self.position() == self.context_size() {
                generation.stop = StopReason::ContextFull;
                break;
            }
            self.reload_if_asked()?;
            let evaluated = self.step(&mut [token])?;
            generation.epochs.1 = self.epoch();
            if !evaluated {
                generation.stop = StopReason::Cancelled;
                break;
            }
        }
        let since = at_prompt.zip(self.store_stats());
        generation.decode = since.map(|(then, now)| now.since(&then));
        let decode_time = first.map_or_else(Default::default, |first| first.elapsed());
        let per_second = |n: usize, ms: f64| if n > 0 && ms > 0.0 { n as f64 * 1000.0 / ms } else { 0.0 };
        let (prompt_ms, decode_ms) = (prompt_time.as_secs_f64() * 1e3, decode_time.as_secs_f64() * 1e3);
        generation.timings = Timings {
            prompt_ms,
            decode_ms,
            ttft_ms: first.map_or(0.0, |first| (first - begin).as_secs_f64() * 1e3),
            prompt_tps: per_second(prompt.len(), prompt_ms),
            decode_tps: per_second(generation.tokens.len().saturating_sub(1), decode_ms),
        };
        Ok(generation)
    }

    /// Evaluates tokens batch by batch; false if interrupted.
    pub(crate) fn evaluate(&mut self, mut tokens: Vec<Token>) -> Result<bool, EngineError> {
        let batch = self.batch();
        for chunk in tokens.chunks_mut(batch) {
            if !self.step(chunk)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Evaluates tokens; false if interrupted, and then the context holds what it held before.
    fn step(&mut self, tokens: &mut [Token]) -> Result<bool, EngineError> {
        let before = self.position();
        match self.context().decode(tokens) {
            Ok(()) => {
                self.advance(tokens);
                Ok(true)
            }
            Err(ContextError::Interrupted) => {
                self.rewind(before);
                Ok(false)
            }
            Err(error) if self.is_being_written(&error) => {
                self.rewind(before);
                if self.position() != before {
                    return Err(error.into());
                }
                self.reload_if_asked()?;
                self.step(tokens)
            }
            Err(error) => Err(error.into()),
        }
    }
}
