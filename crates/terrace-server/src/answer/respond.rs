//! Answers in the forms of several APIs, whole or streamed in pieces.

use super::running::{Piece, Running};
use crate::app::{App, Ready};
use crate::error::ApiError;
use crate::response::{EPOCH, json};
use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use terrace_engine::Answer;
use terrace_engine::serving::Job;

/// An API's form of an answer.
pub trait Form: Send + 'static {
    /// The whole answer.
    fn whole(&mut self, text: String, answer: &Answer) -> Value;
    /// Objects before the first piece.
    fn begin(&mut self) -> Vec<Value> {
        Vec::new()
    }
    /// A piece of the text.
    fn piece(&mut self, text: String) -> Value;
    /// Objects after the last piece.
    fn end(&mut self, answer: &Answer) -> Vec<Value>;
    /// The object in place of [`Form::end`] if the answer fails.
    fn error(&self, error: &ApiError) -> Value {
        error.body()
    }
    /// How pieces are sent.
    fn framing(&self) -> Framing;
}

/// How pieces are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Server-sent events; OpenAI's end with `[DONE]`.
    Events {
        /// Whether they end with `[DONE]`.
        done: bool,
    },
    /// Lines of JSON.
    Lines,
}

/// Submits a job, and answers the request.
///
/// # Errors
/// The job was refused, or it failed before anything was sent.
pub async fn respond(
    app: &App,
    ready: &Arc<Ready>,
    job: Job,
    stream: bool,
    mut form: impl Form,
) -> Result<Response, ApiError> {
    let mut running = Running::submit(app, ready, job)?;
    let begun = running.begun().await?;
    if stream {
        return Ok(with_epoch(pieces(running, form), begun.epoch));
    }
    let (text, answer) = running.whole().await?;
    Ok(with_epoch(json(&form.whole(text, &answer)), answer.epochs.1))
}

fn with_epoch(mut response: Response, epoch: u64) -> Response {
    response.headers_mut().insert(EPOCH, HeaderValue::from(epoch));
    response
}

fn pieces(running: Running, form: impl Form) -> Response {
    match form.framing() {
        Framing::Events { done } => {
            let events =
                stream::unfold(Pieces::new(running, form, done.then_some("[DONE]")), |mut pieces| async {
                    let text = pieces.next().await?;
                    Some((Ok::<_, Infallible>(sse::Event::default().data(text)), pieces))
                });
            let mut response = Sse::new(events).keep_alive(KeepAlive::default()).into_response();
            // Proxies must not buffer the events.
            response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
            response
        }
        Framing::Lines => {
            let content = (header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
            ([content], Body::from_stream(lines(Pieces::new(running, form, None)))).into_response()
        }
    }
}

fn lines(pieces: Pieces<impl Form>) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(pieces, |mut pieces| async {
        let text = pieces.next().await?;
        Some((Ok(Bytes::from(text + "\n")), pieces))
    })
}

/// The pieces of a running answer.
struct Pieces<F> {
    /// `None`: the answer has ended.
    running: Option<Running>,
    form: F,
    /// What is sent next.
    ready: VecDeque<String>,
    done: Option<&'static str>,
}

impl<F: Form> Pieces<F> {
    fn new(running: Running, mut form: F, done: Option<&'static str>) -> Self {
        let ready = form.begin().iter().map(Value::to_string).collect();
        Self { running: Some(running), form, ready, done }
    }

    /// The next text to send. `None` after the last. An error is the last text, without `[DONE]`
    /// after it.
    async fn next(&mut self) -> Option<String> {
        if let Some(text) = self.ready.pop_front() {
            return Some(text);
        }
        match self.running.as_mut()?.next().await {
            Ok(Piece::Text(text)) => Some(self.form.piece(text).to_string()),
            Ok(Piece::End(answer)) => {
                self.running = None;
                self.ready.extend(self.form.end(&answer).iter().map(Value::to_string));
                self.ready.extend(self.done.map(String::from));
                self.ready.pop_front()
            }
            Err(error) => {
                self.running = None;
                Some(self.form.error(&error).to_string())
            }
        }
    }
}
