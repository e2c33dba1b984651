//! Sessions: texts that go on.

use crate::answer;
use crate::failure::Failure;
use crate::model::ModelHandle;
use crate::options::GenerateArgs;
use crate::status::Status;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_engine::{Answer, Engine, Limits, Session, StopReason};
use terrace_ggml::llama::Sampling;

/// A text of a model's: prompts and what was generated after them.
pub struct SessionHandle {
    model: Arc<ModelHandle>,
    held: Mutex<Held>,
}

/// The session, and its text where it is a conversation that can go on.
struct Held {
    session: Session,
    /// Empty: a conversation begins anew.
    text: Vec<u8>,
}

/// Handles are used from any thread.
const fn shared<T: Send + Sync>() {}
const _: () = shared::<SessionHandle>();

/// What gets each token's bytes, and may end the text.
pub type Sink<'a> = &'a mut dyn FnMut(&[u8]) -> ControlFlow<()>;

impl SessionHandle {
    /// Makes an empty session.
    ///
    /// # Errors
    /// As of [`ModelHandle::with`].
    pub fn new(model: Arc<ModelHandle>) -> Result<Self, Failure> {
        let session = model.with(|engine| Ok(engine.session()))?;
        Ok(Self { model, held: Mutex::new(Held { session, text: Vec::new() }) })
    }

    /// Only calls that have the engine lock it, and a panic of theirs has poisoned that one.
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Generates after the session's text and `prompt`. Returns the result as JSON.
    ///
    /// # Errors
    /// The options mean nothing, the prompt does not fit, or the computation fails.
    pub fn generate(&self, prompt: &str, options: Option<&str>, sink: Sink<'_>) -> Result<String, Failure> {
        let args = GenerateArgs::read(options)?;
        self.model.with(|engine| {
            let sampling = args.sampling(engine.vocabulary())?;
            let mut held = self.held();
            let Held { session, text } = &mut *held;
            // A document begins once.
            let begins = session.is_empty() && !self.model.begins(prompt);
            let tokens = engine.tokenize_prompt(prompt, begins)?;
            text.clear();
            generated(engine, session, &tokens, args.limits(), &sampling, sink)
                .and_then(|answer| answer::text(&answer::of_generation(&answer)))
        })
    }

    /// Generates the answer to a conversation. What the session holds of it is not evaluated again. Returns the
    /// result as JSON.
    ///
    /// # Errors
    /// As [`SessionHandle::generate`], and those of [`ModelHandle::written`].
    pub fn chat(&self, messages: &str, options: Option<&str>, sink: Sink<'_>) -> Result<String, Failure> {
        let args = GenerateArgs::read(options)?;
        let written = self.model.written(messages)?;
        self.model.with(|engine| {
            let mut sampling = args.sampling(engine.vocabulary())?;
            let mut limits = args.limits();
            limits.stop.extend(written.stop);
            let thinking = self.model.thinking();
            if let (Some(mut thoughts), Some(budget)) = (written.thoughts, thinking.budget()) {
                thinking.limit(&mut thoughts, Some(budget));
                sampling.thoughts = Some(thoughts);
            }
            let mut held = self.held();
            let Held { session, text } = &mut *held;
            let more = continuation(text, &written.prompt).filter(|_| !session.is_empty());
            let tokens = match more {
                Some(more) => engine.tokenize(more, false, true)?,
                None => {
                    *session = engine.session();
                    engine.tokenize_prompt(&written.prompt, !self.model.begins(&written.prompt))?
                }
            };
            text.clear();
            let before = session.len();
            let answer = generated(engine, session, &tokens, limits, &sampling, sink)?;
            // Only an answer that the model ended itself is in the context as a whole.
            let whole = session.len() == before + tokens.len() + answer.tokens.len();
            if whole && answer.stop == StopReason::EndOfText {
                text.extend_from_slice(written.prompt.as_bytes());
                text.extend_from_slice(&answer.text);
            }
            answer::text(&answer::of_generation(&answer))
        })
    }
}

fn generated(
    engine: &mut Engine,
    session: &mut Session,
    tokens: &[i32],
    limits: Limits,
    sampling: &Sampling,
    sink: Sink<'_>,
) -> Result<Answer, Failure> {
    let mut stopped = false;
    let answer = engine.generate(session, tokens, limits, sampling, &mut |bytes| {
        let flow = sink(bytes);
        stopped |= flow.is_break();
        flow
    })?;
    // A callback that ends the text has what it wanted; who interrupts is told that it was not the end.
    if answer.stop == StopReason::Cancelled && !stopped {
        return Err(Failure::new(Status::TerraceCancelled, "interrupted"));
    }
    Ok(answer)
}

/// The part of `written` after `held`; `None` if it does not begin with it, or nothing is held.
fn continuation<'a>(held: &[u8], written: &'a str) -> Option<&'a str> {
    let held = std::str::from_utf8(held).ok().filter(|held| !held.is_empty())?;
    written.strip_prefix(held).filter(|rest| !rest.is_empty())
}
