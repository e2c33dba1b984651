//! An answer that is read while it grows: content, thoughts, and calls of tools.

use super::progress::Progress;
use super::running::{Begun, Piece, Running};
use crate::app::{App, Ready};
use crate::error::ApiError;
use crate::exchange::Exchange;
use crate::request::question::Question;
use std::collections::VecDeque;
use std::sync::Arc;
use terrace_engine::{
    Answer, AnswerForm, AnswerReader, ChatTemplateError, Delta, PromptProbs, StopReason, TokenProbs,
};
use tokio::task::spawn_blocking;

/// A part of a growing answer.
pub enum AnswerPart {
    /// More of it. A new call of a tool has a name and an identification.
    Delta(Delta),
    /// Tokens with their probabilities, before their text.
    Probs(Vec<TokenProbs>),
    /// A token, before its text.
    Token(i32),
    /// The prompt's tokens with their probabilities, before the answer's.
    Scored(PromptProbs),
    /// More of the prompt is done.
    Progress(Progress),
}

/// Result of [`Reading::next`].
pub enum Read {
    Part(AnswerPart),
    End(Box<Done>),
}

/// A whole answer.
#[derive(Debug)]
pub struct Done {
    /// Text that is neither reasoning nor a call.
    pub content: String,
    pub thoughts: String,
    /// About the number of its tokens that are thoughts.
    pub thought_tokens: usize,
    pub calls: Vec<Call>,
    /// The prompt's tokens with their probabilities, if they were asked for and were not a part.
    pub scored: Option<PromptProbs>,
    /// Keywords of the request's schemas that it need not follow.
    pub unenforced: Vec<String>,
    pub answer: Answer,
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    pub id: String,
    pub name: String,
    /// JSON.
    pub arguments: String,
}

/// A running answer, and what was read of it.
pub struct Reading {
    running: Running,
    ready: Arc<Ready>,
    form: Option<AnswerForm>,
    /// In use on another thread if there is none but a form, or not there yet.
    reader: Option<AnswerReader>,
    parts: VecDeque<AnswerPart>,
    content: String,
    thoughts: String,
    thought_tokens: usize,
    calls: Vec<Call>,
    /// See [`Done::unenforced`].
    unenforced: Vec<String>,
    /// The end, once it is known.
    answer: Option<Box<Answer>>,
}

impl Reading {
    /// Submits a job.
    ///
    /// # Errors
    /// It was refused.
    pub fn submit(app: &App, ready: &Arc<Ready>, question: Question) -> Result<Self, ApiError> {
        Ok(Self {
            running: Running::submit(app, ready, question.job)?,
            ready: Arc::clone(ready),
            form: question.form,
            reader: None,
            parts: VecDeque::new(),
            content: String::new(),
            thoughts: String::new(),
            thought_tokens: 0,
            calls: Vec::new(),
            unenforced: Exchange::here().map(|exchange| exchange.noted().unenforced).unwrap_or_default(),
            answer: None,
        })
    }

    /// See [`Running::begun`].
    ///
    /// # Errors
    /// As there.
    pub async fn begun(&mut self) -> Result<Begun, ApiError> {
        self.running.begun().await
    }

    /// The next part; nothing comes after [`Read::End`].
    ///
    /// # Errors
    /// The job failed, or exceeded the time limit.
    pub async fn next(&mut self) -> Result<Read, ApiError> {
        loop {
            if let Some(part) = self.parts.pop_front() {
                return Ok(Read::Part(part));
            }
            if let Some(answer) = self.answer.take() {
                return Ok(Read::End(Box::new(Done {
                    content: std::mem::take(&mut self.content),
                    thoughts: std::mem::take(&mut self.thoughts),
                    thought_tokens: std::mem::take(&mut self.thought_tokens),
                    calls: std::mem::take(&mut self.calls),
                    scored: None,
                    unenforced: std::mem::take(&mut self.unenforced),
                    answer: *answer,
                })));
            }
            match self.running.next().await? {
                Piece::Probs(probs) => self.parts.push_back(AnswerPart::Probs(probs)),
                Piece::Token(token) => self.parts.push_back(AnswerPart::Token(token)),
                Piece::Scored(probs) => self.parts.push_back(AnswerPart::Scored(probs)),
                Piece::Progress(progress) => self.parts.push_back(AnswerPart::Progress(progress)),
                Piece::Text(text) if self.form.is_none() => self.add(Delta::Text(text)),
                Piece::Text(mut text) => {
                    // What has come meanwhile is read with it: each reading begins at the answer's
                    // beginning.
                    while let Some(piece) = self.running.waiting() {
                        match piece {
                            Piece::Text(more) => text.push_str(&more),
                            Piece::Probs(probs) => self.parts.push_back(AnswerPart::Probs(probs)),
                            Piece::Token(token) => self.parts.push_back(AnswerPart::Token(token)),
                            Piece::End(_) | Piece::Progress(_) | Piece::Scored(_) => {
                                unreachable!("none of them waits")
                            }
                        }
                    }
                    // A beginning that cannot be read yet may become readable.
                    let added = unless_lost(self.push(text, true).await)?;
                    added.unwrap_or_default().into_iter().for_each(|delta| self.add(delta));
                }
                Piece::End(answer) => {
                    self.read_rest(&answer).await?;
                    self.thought_tokens = self.count_thoughts().await.min(answer.tokens.len());
                    self.answer = Some(answer);
                }
            }
        }
    }

    /// Waits for the whole answer.
    ///
    /// # Errors
    /// As [`Reading::next`].
    pub async fn whole(mut self) -> Result<Done, ApiError> {
        let mut scored = None;
        loop {
            match self.next().await? {
                Read::End(done) => return Ok(Done { scored, ..*done }),
                Read::Part(AnswerPart::Scored(probs)) => scored = Some(probs),
                Read::Part(_) => {}
            }
        }
    }

    /// Reads what only the end of an answer makes clear.
    ///
    /// # Errors
    /// What reads it is lost.
    async fn read_rest(&mut self, answer: &Answer) -> Result<(), ApiError> {
        if self.form.is_none() {
            return Ok(());
        }
        // An answer that was cut off is a part of one.
        let cut = answer.stop != StopReason::EndOfText;
        let mut added = unless_lost(self.push(String::new(), cut).await)?;
        if let (Err(error), false) = (&added, cut) {
            tracing::warn!(%error, "the answer is passed on as far as it could be read");
            added = unless_lost(self.push(String::new(), true).await)?;
        }
        added.unwrap_or_default().into_iter().for_each(|delta| self.add(delta));
        if self.content.is_empty() && self.thoughts.is_empty() && self.calls.is_empty() {
            let text = String::from_utf8_lossy(&answer.text).into_owned();
            if !text.is_empty() {
                self.add(Delta::Text(text));
            }
        }
        Ok(())
    }

    /// The number of tokens that the thoughts take. The model may have cut them up differently.
    async fn count_thoughts(&self) -> usize {
        if self.thoughts.is_empty() {
            return 0;
        }
        let (thoughts, ready) = (self.thoughts.clone(), Arc::clone(&self.ready));
        let count = move || {
            let tokens = ready.ask(|serving| serving.tokenize(&thoughts, false, false, &|| true));
            tokens.ok()?.ok().map(|tokens| tokens.len())
        };
        spawn_blocking(count).await.ok().flatten().unwrap_or_default()
    }

    /// Has the reader read more, on another thread.
    async fn push(&mut self, text: String, more: bool) -> Result<Vec<Delta>, ChatTemplateError> {
        let (reader, form, ready) = (self.reader.take(), self.form.clone(), Arc::clone(&self.ready));
        let gone = || ChatTemplateError::Process("it is gone".into());
        let read = spawn_blocking(move || {
            let mut reader = match (reader, form) {
                (Some(reader), _) => reader,
                (None, Some(form)) => ready.template_of_chats().ok_or_else(gone)?.reader(&form)?,
                (None, None) => return Err(gone()),
            };
            let added = reader.push(&text, more);
            Ok((reader, added))
        });
        let (reader, added) = read.await.map_err(|_| gone())??;
        self.reader = Some(reader);
        added
    }

    fn add(&mut self, mut delta: Delta) {
        match &mut delta {
            Delta::Text(text) => self.content.push_str(text),
            Delta::Thought(text) => self.thoughts.push_str(text),
            Delta::Call { index, id, name, arguments } => {
                if *index >= self.calls.len() {
                    self.calls.resize_with(*index + 1, Call::default);
                }
                let call = &mut self.calls[*index];
                if let Some(name) = name {
                    call.name.push_str(name);
                    call.id = id.get_or_insert_with(|| crate::response::random_id("call_")).clone();
                }
                call.arguments.push_str(arguments);
            }
        }
        self.parts.push_back(AnswerPart::Delta(delta));
    }
}

/// Passes on errors that only concern the text so far. After others, nothing more can be read, and the answer
/// must not look complete.
fn unless_lost<T>(read: Result<T, ChatTemplateError>) -> Result<Result<T, ChatTemplateError>, ApiError> {
    match read {
        Err(error) if !error.is_harmless() => Err(error.into()),
        read => Ok(read),
    }
}
