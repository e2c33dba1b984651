//! A request's settings of responses.

use super::body::Fields;
use super::lora::lora;
use super::sampling;
use crate::app::{App, Ready};
use crate::error::ApiError;
use terrace_engine::{LineLimits, Scales};
use terrace_ggml::llama::Sampling;
use terrace_serving::Prompt;

/// Names of the strings that end an answer, in the APIs of OpenAI and llama-server, of other programs
/// that llama-server knows, and of Anthropic.
const STOPS: [&str; 3] = ["stop", "stopping_strings", "stop_sequences"];
/// Maximum number of answers to one prompt.
const MOST_ANSWERS: i64 = 64;
/// Maximum number of probabilities that are told of the tokens of a request's prompts: some 150 MB while
/// they are sent.
const MOST_SCORES: usize = 1 << 20;

/// A request's settings of responses, of whatever kind.
#[derive(Clone)]
pub struct AnswerSettings {
    pub sampling: Sampling,
    pub stop: Vec<String>,
    /// See [`Job::lines`].
    pub lines: LineLimits,
    pub n_max: Option<usize>,
    pub reuse: bool,
    /// See [`Job::scales`].
    pub scales: Scales,
    /// See [`Job::slot`].
    pub slot: Option<usize>,
    /// See [`Job::probs`].
    pub probs: Option<usize>,
    /// See [`Job::after_samplers`].
    pub after_samplers: bool,
    /// See [`Job::tokens`].
    pub tokens: bool,
    /// See [`Job::scored`].
    pub scored: bool,
    /// Number of answers to each prompt.
    pub answers: usize,
}

impl AnswerSettings {
    /// Settings of requests that state none.
    pub fn of(app: &App, ready: &Ready) -> Self {
        let (sampling, n_max) = (app.sampling(), app.n_max());
        Self {
            sampling,
            stop: Vec::new(),
            lines: LineLimits::default(),
            n_max,
            reuse: true,
            scales: ready.scales(),
            slot: None,
            probs: None,
            after_samplers: false,
            tokens: false,
            scored: false,
            answers: 1,
        }
    }

    /// Reads what all APIs have: the samplers, the adapters, what ends an answer, and a limit under one of
    /// these names.
    ///
    /// # Errors
    /// A field is not valid.
    pub fn read(
        fields: &mut Fields,
        app: &App,
        ready: &Ready,
        limits: &[&'static str],
    ) -> Result<Self, ApiError> {
        Ok(Self {
            sampling: sampling::sampling(fields, app, ready)?,
            stop: sampling::stop(fields, &STOPS)?,
            n_max: sampling::n_max(fields, app, limits)?,
            scales: lora(fields, ready)?,
            ..Self::of(app, ready)
        })
    }

    /// Reads the number of answers.
    ///
    /// # Errors
    /// The field is not such a number.
    pub fn read_answers(&mut self, fields: &mut Fields, names: &[&'static str]) -> Result<(), ApiError> {
        for name in names {
            if let Some(n) = fields.integer(name, 1..=MOST_ANSWERS)? {
                self.answers = usize::try_from(n).unwrap_or(1);
            }
        }
        Ok(())
    }

    /// Checks that not too much is to be told of the tokens of these prompts.
    ///
    /// # Errors
    /// It is too much.
    pub fn check_scores(&self, prompts: &[Prompt]) -> Result<(), ApiError> {
        let Some(top) = self.probs.filter(|_| self.scored) else { return Ok(()) };
        let tokens: usize = prompts.iter().map(|prompt| prompt.len()).sum();
        let scores = tokens.saturating_mul(self.answers).saturating_mul(top + 1);
        if scores <= MOST_SCORES {
            return Ok(());
        }
        let message = format!(
            "`logprobs` with `echo` asks for {scores} probabilities of prompt tokens, but at most {MOST_SCORES} are returned"
        );
        Err(ApiError::field("logprobs", message))
    }
}
