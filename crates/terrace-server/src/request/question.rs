//! The engine's part of a request, and the form of the response.

use super::answer_settings::AnswerSettings;
use super::chat::Rendered;
use super::cost;
use super::prompt;
use crate::app::Ready;
use crate::error::ApiError;
use terrace_engine::AnswerForm;
use terrace_ggml::llama::Sampling;
use terrace_serving::{Job, Prepared, Prompt};

/// A job for the engine, and how its answer is read.
pub struct Question {
    pub job: Prepared,
    /// `None`: all of it is content.
    pub form: Option<AnswerForm>,
}

impl AnswerSettings {
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
            let message = "`echo` returns no probabilities for a prompt with images";
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
