//! Answers in the forms of several APIs: whole, or piece by piece as they come.

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
    /// An answer in one piece.
    fn whole(&mut self, text: String, answer: &Answer) -> Value;
    /// What comes before the first piece.
    fn begin(&mut self) -> Vec<Value> {
        Vec::new()
    }
    /// A piece.
    fn piece(&mut self, text: String) -> Value;
    /// What comes after the last one.
    fn end(&mut self, answer: &Answer) -> Vec<Value>;
    /// What comes instead of it if the answer fails.
    fn error(&self, error: &ApiError) -> Value {
        error.body()
    }
    /// How pieces go out.
    fn framing(&self) -> Framing;
}

/// How pieces go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// As server-sent events; OpenAI's end with `[DONE]`.
    Events {
        /// Whether they do.
        done: bool,
    },
    /// As lines of JSON.
    Lines,
}

/// Has a job done, and answers.
///
/// # Errors
/// It was not taken, or failed before anything went out.
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
            // Proxies must not wait for more.
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

/// An answer on its way out.
struct Pieces<F> {
    /// None: it has ended.
    running: Option<Running>,
    form: F,
    /// What goes out next.
    ready: VecDeque<String>,
    done: Option<&'static str>,
}

impl<F: Form> Pieces<F> {
    fn new(running: Running, mut form: F, done: Option<&'static str>) -> Self {
        let ready = form.begin().iter().map(Value::to_string).collect();
        Self { running: Some(running), form, ready, done }
    }

    /// The next text to go out; none after the last. An error is the last one, and then there is no `[DONE]`.
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
