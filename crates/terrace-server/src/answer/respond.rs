//! Answers in the forms of several APIs, whole or streamed in pieces.

use super::reading::{AnswerPart, Done, Read, Reading};
use super::running::Begun;
use crate::app::{App, Ready};
use crate::error::ApiError;
use crate::request::question::Question;
use crate::response::{EPOCH, json};
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::future::try_join_all;
use futures_util::stream::{self, SelectAll, Stream, StreamExt};
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

/// An API's form of answers: one or several to a request, each with a number.
pub trait Form: Send + 'static {
    /// All answers, whole.
    fn whole(&mut self, all: Vec<Done>) -> Value;
    /// The first answer has a server slot.
    fn begun(&mut self, _begun: Begun) {}
    /// Frames before the first part.
    fn begin(&mut self) -> Vec<Frame> {
        Vec::new()
    }
    /// A part of an answer.
    fn part(&mut self, number: usize, part: AnswerPart) -> Vec<Frame>;
    /// Frames after the last part of a response.
    fn end(&mut self, number: usize, done: &Done) -> Vec<Frame>;
    /// Frames after the last response.
    fn finish(&mut self) -> Vec<Frame> {
        Vec::new()
    }
    /// Frame in place of the rest if a response fails.
    fn error(&self, error: &ApiError) -> Frame {
        error.body().into()
    }
    /// Framing of all that is sent.
    fn framing(&self) -> Framing;
}

/// One object of a stream.
#[derive(Debug)]
pub struct Frame {
    /// The name of the server-sent event.
    pub event: Option<&'static str>,
    pub data: Value,
}

impl From<Value> for Frame {
    fn from(data: Value) -> Self {
        Self { event: None, data }
    }
}

/// Framing of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events; OpenAI's end with `[DONE]`.
    Events {
        /// True if they end with `[DONE]`.
        done: bool,
    },
    /// Lines of JSON.
    Lines,
}

/// Submits the jobs of a request, and answers it.
///
/// # Errors
/// A job was refused, or the first one failed before anything was sent.
pub async fn respond(
    app: &App,
    ready: &Arc<Ready>,
    questions: Vec<Question>,
    stream: bool,
    mut form: impl Form,
) -> Result<Response, ApiError> {
    let submit = |question| Reading::submit(app, ready, question);
    let mut all = questions.into_iter().map(submit).collect::<Result<Vec<_>, _>>()?;
    let first = all.first_mut().ok_or_else(|| ApiError::request("there is nothing to answer"))?;
    let begun = first.begun().await?;
    form.begun(begun);
    if stream {
        return Ok(with_epoch(streamed(all, form), begun.epoch));
    }
    let all = try_join_all(all.into_iter().map(Reading::whole)).await?;
    let epoch = all.first().map_or(begun.epoch, |done| done.answer.epochs.1);
    Ok(with_epoch(json(&form.whole(all)), epoch))
}

fn with_epoch(mut response: Response, epoch: u64) -> Response {
    response.headers_mut().insert(EPOCH, HeaderValue::from(epoch));
    response
}

fn streamed(all: Vec<Reading>, form: impl Form) -> Response {
    match form.framing() {
        Framing::Events { done } => {
            let done = done.then_some("[DONE]");
            let events = stream::unfold(Parts::new(all, form, done), |mut parts| async {
                let FrameText { event, text } = parts.next().await?;
                // The name comes first, as clients that read lines expect.
                let sent = event.map_or_else(sse::Event::default, |name| sse::Event::default().event(name));
                Some((Ok::<_, Infallible>(sent.data(text)), parts))
            });
            let mut response = Sse::new(events).keep_alive(KeepAlive::default()).into_response();
            // Proxies must not buffer the events.
            response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
            response
        }
        Framing::Lines => {
            let content = (header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
            ([content], Body::from_stream(lines(Parts::new(all, form, None)))).into_response()
        }
    }
}

fn lines(parts: Parts<impl Form>) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(parts, |mut parts| async {
        let FrameText { text, .. } = parts.next().await?;
        Some((Ok(Bytes::from(text + "\n")), parts))
    })
}

/// A frame as text.
struct FrameText {
    event: Option<&'static str>,
    text: String,
}

impl From<Frame> for FrameText {
    fn from(frame: Frame) -> Self {
        Self { event: frame.event, text: frame.data.to_string() }
    }
}

/// Parts of a response, with its number.
type Numbered = Pin<Box<dyn Stream<Item = (usize, Result<Read, ApiError>)> + Send>>;

/// The parts of running answers, as they come.
struct Parts<F> {
    /// Those that have not ended.
    running: SelectAll<Numbered>,
    form: F,
    /// Next frames.
    ready: VecDeque<FrameText>,
    /// True if the form's end is still to be sent, and what follows it.
    open: bool,
    done: Option<&'static str>,
}

impl<F: Form> Parts<F> {
    fn new(all: Vec<Reading>, mut form: F, done: Option<&'static str>) -> Self {
        let ready = form.begin().into_iter().map(FrameText::from).collect();
        let running = stream::select_all(all.into_iter().enumerate().map(|(number, reading)| {
            let parts = stream::unfold(Some(reading), move |reading| async move {
                let mut reading = reading?;
                let read = reading.next().await;
                let more = matches!(read, Ok(Read::Part(_)));
                Some(((number, read), more.then_some(reading)))
            });
            Box::pin(parts) as Numbered
        }));
        Self { running, form, ready, open: true, done }
    }

    /// The next text to send. `None` after the last. An error is the last text, without `[DONE]`
    /// after it.
    async fn next(&mut self) -> Option<FrameText> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            let frames = match self.running.next().await {
                Some((number, Ok(Read::Part(part)))) => self.form.part(number, part),
                Some((number, Ok(Read::End(done)))) => self.form.end(number, &done),
                Some((_, Err(error))) => {
                    self.running = SelectAll::new();
                    self.open = false;
                    return Some(self.form.error(&error).into());
                }
                None if self.open => {
                    self.open = false;
                    self.ready.extend(self.form.finish().into_iter().map(FrameText::from));
                    let text = self.done.map(String::from);
                    self.ready.extend(text.map(|text| FrameText { event: None, text }));
                    continue;
                }
                None => return None,
            };
            self.ready.extend(frames.into_iter().map(FrameText::from));
        }
    }
}
