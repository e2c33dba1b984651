//! A job in the engine, from its submission to its last event.

use super::claim::Claim;
use super::events::{Backlog, Events, events};
use super::progress::{Progress, Prompt};
use crate::advice::Reason;
use crate::app::{App, Ready};
use crate::error::ApiError;
use crate::exchange::Exchange;
use std::sync::Arc;
use terrace_engine::{Answer, EngineError, PromptProbs, StopReason, TokenProbs, Utf8Stream};
use terrace_serving::{Event, Prepared};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// An accepted job. When dropped, for example because the client disconnects, it leaves the queue
/// or ends at its next token.
pub struct Running {
    ready: Arc<Ready>,
    events: Events,
    text: Utf8Stream,
    /// The answer, while the rest of its text is sent first.
    answer: Option<Box<Answer>>,
    /// `None` until the job has a slot.
    prompt: Option<Prompt>,
    /// An event that has come already, while the end of the prompt is reported first.
    held: Option<Event>,
    deadline: Option<Instant>,
    /// True once weights are lost.
    loss: watch::Receiver<bool>,
    /// True if the model is loaded again then.
    restarts: bool,
    exchange: Option<Arc<Exchange>>,
    _claim: Claim,
}

/// Facts about a job when it gets a server slot.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// The model's epoch.
    pub epoch: u64,
    /// Tokens of the prompt, and of these those that the slot held already.
    pub prompt_tokens: usize,
    pub reused: usize,
}

/// A part of a running answer.
pub enum Piece {
    /// More of the prompt is done.
    Progress(Progress),
    /// A token, before its text.
    Token(i32),
    /// The prompt's tokens with their probabilities.
    Scored(PromptProbs),
    /// More text, never empty and never ending within a character.
    Text(String),
    /// Tokens with their probabilities, before their text.
    Probs(Vec<TokenProbs>),
    End(Box<Answer>),
}

impl Running {
    /// Submits a job.
    ///
    /// # Errors
    /// The job was refused.
    pub fn submit(app: &App, ready: &Arc<Ready>, job: Prepared) -> Result<Self, ApiError> {
        let exchange = Exchange::here();
        let background = exchange.as_ref().is_some_and(|exchange| exchange.background);
        // It may rest for as long as others are answered.
        let deadline = app.timeout.filter(|_| !background).map(|timeout| Instant::now() + timeout);
        let job = if background { job.in_background() } else { job };
        let (sink, events) = events();
        let ticket = ready.ask(|serving| serving.submit(job, sink))??;
        Ok(Self {
            ready: Arc::clone(ready),
            events,
            text: Utf8Stream::default(),
            answer: None,
            prompt: None,
            held: None,
            deadline,
            loss: ready.loss(),
            restarts: app.restarts,
            exchange: exchange.inspect(|exchange| exchange.by(&ready.name)),
            _claim: Claim::new(ticket, deadline),
        })
    }

    /// Waits until the job has a server slot. Errors up to here become the response's status; later
    /// ones cannot.
    ///
    /// # Errors
    /// The job ended before that.
    pub async fn begun(&mut self) -> Result<Begun, ApiError> {
        match self.event().await? {
            Event::Started { epoch, prompt_tokens, reused } => {
                self.prompt = Some(Prompt::begin(prompt_tokens, reused));
                Ok(Begun { epoch, prompt_tokens, reused })
            }
            Event::Failed(error) => Err(self.failed(error)),
            Event::Displaced => Err(ApiError::displaced()),
            // Waiting jobs are only cancelled by the end of the server.
            Event::Finished(_)
            | Event::Text(_)
            | Event::Probs(_)
            | Event::Token(_)
            | Event::Scored(_)
            | Event::Progress { .. } => Err(ApiError::stopping()),
        }
    }

    /// The next piece; nothing comes after [`Piece::End`].
    ///
    /// # Errors
    /// The job failed, or exceeded the time limit.
    pub async fn next(&mut self) -> Result<Piece, ApiError> {
        if let Some(answer) = self.answer.take() {
            return Ok(Piece::End(answer));
        }
        loop {
            if let Some(progress) = self.prompt.as_mut().and_then(Prompt::untold) {
                return Ok(Piece::Progress(progress));
            }
            let event = match self.held.take() {
                Some(event) => event,
                None => self.event().await?,
            };
            if is_of_answer(&event) && self.prompt.as_mut().is_some_and(Prompt::end) {
                self.held = Some(event);
                continue;
            }
            let text = match event {
                Event::Started { prompt_tokens, reused, .. } => {
                    self.prompt = Some(Prompt::begin(prompt_tokens, reused));
                    continue;
                }
                Event::Progress { evaluated } => {
                    self.prompt.as_mut().into_iter().for_each(|prompt| prompt.reach(evaluated));
                    continue;
                }
                Event::Text(bytes) => self.text.push(&bytes),
                Event::Probs(probs) => return Ok(Piece::Probs(probs)),
                Event::Token(token) => return Ok(Piece::Token(token)),
                Event::Scored(probs) => return Ok(Piece::Scored(probs)),
                Event::Failed(error) => return Err(self.failed(error)),
                Event::Displaced => return Err(ApiError::displaced()),
                // Only the end of the server cancels a job whose client still waits.
                Event::Finished(answer) if answer.stop == StopReason::Cancelled => {
                    return Err(ApiError::cut_short());
                }
                Event::Finished(answer) => {
                    if let Some(exchange) = &self.exchange {
                        exchange.answered(&answer);
                    }
                    let rest = self.text.finish();
                    if rest.is_empty() {
                        return Ok(Piece::End(answer));
                    }
                    self.answer = Some(answer);
                    rest
                }
            };
            if !text.is_empty() {
                return Ok(Piece::Text(text));
            }
        }
    }

    /// A piece that is there already. The end is left for [`Running::next`].
    pub fn waiting(&mut self) -> Option<Piece> {
        loop {
            let of_text = |event: &Event| matches!(event, Event::Text(_) | Event::Probs(_) | Event::Token(_));
            let text = match self.events.waiting(of_text)? {
                Event::Probs(probs) => return Some(Piece::Probs(probs)),
                Event::Token(token) => return Some(Piece::Token(token)),
                Event::Text(bytes) => self.text.push(&bytes),
                _ => return None,
            };
            if !text.is_empty() {
                return Some(Piece::Text(text));
            }
        }
    }

    async fn event(&mut self) -> Result<Event, ApiError> {
        let (events, loss) = (&mut self.events, &mut self.loss);
        let coming = async {
            tokio::select! {
                biased;
                event = events.next() => Ok(event),
                Ok(_) = loss.wait_for(|lost| *lost) => Err(ApiError::weights_lost(self.restarts)),
            }
        };
        let event = match self.deadline {
            None => coming.await?,
            Some(deadline) => timeout_at(deadline, coming).await.map_err(|_| self.timed_out())??,
        };
        event.map_err(|backlog| match backlog {
            Backlog::Full => ApiError::slow_client(),
            // The claim ended at the deadline while the client did not read.
            Backlog::Read if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) => {
                self.timed_out()
            }
            Backlog::Read => ApiError::internal("the engine ended without a response"),
        })
    }

    fn timed_out(&self) -> ApiError {
        ApiError::timed_out().with(self.ready.advise(Reason::TimeLimit))
    }

    fn failed(&self, error: EngineError) -> ApiError {
        let advice = self.ready.advise(Reason::Engine(&error));
        ApiError::from(error).with(advice)
    }
}

/// Returns true if an event comes after all of the prompt.
const fn is_of_answer(event: &Event) -> bool {
    match event {
        Event::Text(_) | Event::Probs(_) | Event::Token(_) | Event::Scored(_) => true,
        Event::Finished(answer) => !matches!(answer.stop, StopReason::Cancelled),
        Event::Started { .. } | Event::Progress { .. } | Event::Displaced | Event::Failed(_) => false,
    }
}
