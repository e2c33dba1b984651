//! What is asked of the engine, and how the answer is read.

use super::body::Fields;
use super::chat::Rendered;
use super::cost;
use super::lora::lora;
use super::prompt;
use super::sampling;
use crate::app::{App, Ready};
use crate::error::ApiError;
use terrace_engine::{AnswerForm, LineLimits, Scales};
use terrace_ggml::llama::Sampling;
use terrace_serving::{Job, Prepared, Prompt};

/// Names of the strings that end an answer, in the APIs of OpenAI and llama-server, of other programs
/// that llama-server knows, and of Anthropic.
const STOPS: [&str; 3] = ["stop", "stopping_strings", "stop_sequences"];
/// Maximum number of answers to one prompt.
const MOST_ANSWERS: i64 = 64;

/// Maximum number of probabilities that are told of the tokens of a request's prompts: some 150 MB while
/// they are sent.
const MOST_SCORES: usize = 1 << 20;

/// A job for the engine, and how its answer is read.
pub struct Question {
    pub job: Prepared,
    /// `None`: all of it is content.
    pub form: Option<AnswerForm>,
}

/// What a request says of its answers, whatever they answer.
#[derive(Clone)]
pub struct Wanted {
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

impl Wanted {
    /// What requests get that say nothing.
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
            "`logprobs` with `echo` asks for {scores} probabilities of the prompts' tokens, but at most {MOST_SCORES} \
             are told"
        );
        Err(ApiError::field("logprobs", message))
    }

    /// The questions for prompts of plain text, in their order.
    ///
    /// # Errors
    /// They take too much memory; the sampler or the grammar is refused.
    pub fn questions(&self, prompts: &[Prompt], ready: &Ready) -> Result<Vec<Question>, ApiError> {
        cost::check(self, prompts, ready)?;
        let mut questions = Vec::new();
        for prompt in prompts {
            questions.extend(self.ask(prompt, None, ready)?);
        }
        Ok(questions)
    }

    /// The questions for a conversation.
    ///
    /// # Errors
    /// The prompt is too long; the answers take too much memory; the sampler or the grammar is refused.
    pub fn chat(mut self, rendered: Rendered, ready: &Ready) -> Result<Vec<Question>, ApiError> {
        let prompt = prompt::chat_tokens(&rendered, ready)?;
        let written = rendered.written;
        self.stop.extend(written.stop);
        let lazy = written.grammar.as_ref().is_some_and(|grammar| grammar.lazy);
        self.sampling.keep_within(written.grammar);
        // Without a limit, thoughts matter only to a grammar that has to wait for their end.
        self.sampling.thoughts = written.thoughts.filter(|thoughts| lazy || thoughts.tokens.is_some());
        cost::check(&self, std::slice::from_ref(&prompt), ready)?;
        self.ask(&prompt, written.form.as_ref(), ready)
    }

    fn ask(
        &self,
        prompt: &Prompt,
        form: Option<&AnswerForm>,
        ready: &Ready,
    ) -> Result<Vec<Question>, ApiError> {
        if self.scored && !prompt.media().is_empty() {
            let message = "`echo` tells no probabilities of a prompt with images";
            return Err(ApiError::unsupported("echo", message));
        }
        let seeds = (0..self.answers as u64).map(|number| self.sampling.seed.wrapping_add(number));
        seeds
            .map(|seed| {
                let job = Job {
                    prompt: prompt.clone(),
                    n_max: self.n_max,
                    sampling: Sampling { seed, ..self.sampling.clone() },
                    stop: self.stop.clone(),
                    lines: self.lines,
                    reuse: self.reuse,
                    slot: self.slot,
                    probs: self.probs,
                    after_samplers: self.after_samplers,
                    tokens: self.tokens,
                    scored: self.scored,
                    scales: self.scales.clone(),
                };
                let job = ready.ask(|serving| serving.prepare(job))??;
                Ok(Question { job, form: form.cloned() })
            })
            .collect()
    }
}
