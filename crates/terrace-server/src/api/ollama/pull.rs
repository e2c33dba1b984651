//! Ollama's endpoints that download and delete models.

use crate::advice::Reason;
use crate::app::{App, LoadedModel};
use crate::error::ApiError;
use crate::library::{Library, LibraryError, Pulled};
use crate::request::body::{Body, Fields};
use crate::request::off_thread;
use crate::response::json;
use axum::body::{Body as Sent, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json as object};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

/// Least time between two lines about the same file.
const BETWEEN: Duration = Duration::from_millis(100);
/// Lines that wait for a slow client; further ones are dropped.
const BACKLOG: usize = 64;

/// `POST /api/pull`.
///
/// # Errors
/// Clients may not download models, or one is being downloaded.
pub async fn pull(State(app): State<Arc<App>>, _: LoadedModel, body: Body) -> Result<Response, ApiError> {
    pull_as_asked(&app, body.fields()).await
}

/// Downloads the model that these fields name.
///
/// # Errors
/// As `pull`.
pub async fn pull_as_asked(app: &App, fields: Result<Fields, ApiError>) -> Result<Response, ApiError> {
    let Some(library) = app.pulls.clone() else {
        let reason = "clients may not download models from this server";
        return Err(ApiError::not_allowed(reason).with(app.advise(Reason::NoPulls)));
    };
    let mut fields = fields?;
    let name = name(&mut fields)?;
    let streams = fields.flag("stream")?.unwrap_or(true);
    fields.flag("insecure")?;
    fields.finish()?;
    let turn = Arc::clone(&app.pulling).try_acquire_owned();
    let turn = turn.map_err(|_| ApiError::pulling())?;
    let mut pulling = Pulling { lines: begin(library, name, turn)?, ending: app.ending(), error: None };
    if streams {
        let lines = stream::unfold(pulling, |mut pulling| async {
            let line = pulling.next().await?;
            Some((Ok::<_, Infallible>(Bytes::from(format!("{line}\n"))), pulling))
        });
        let content = (header::CONTENT_TYPE, "application/x-ndjson");
        return Ok(([content], Sent::from_stream(lines)).into_response());
    }
    let mut last = Value::Null;
    while let Some(line) = pulling.next().await {
        last = line;
    }
    match pulling.error {
        Some(error) => Err(error),
        None => Ok(json(&last)),
    }
}

/// `DELETE /api/delete`.
///
/// # Errors
/// Clients may not delete models, or this one cannot be deleted.
pub async fn delete(
    State(app): State<Arc<App>>,
    LoadedModel(ready): LoadedModel,
    body: Body,
) -> Result<Response, ApiError> {
    let Some(library) = app.deletes.clone() else {
        let reason = "clients may not delete models from this server";
        return Err(ApiError::not_allowed(reason).with(app.advise(Reason::NoDeletes)));
    };
    let mut fields = body.fields()?;
    let name = name(&mut fields)?;
    fields.finish()?;
    let deleted = off_thread(move || Ok(library.delete(&name, &ready.facts.file)?));
    deleted.await?;
    Ok(().into_response())
}

/// The model's name, which older clients send as `name`.
fn name(fields: &mut Fields) -> Result<String, ApiError> {
    let (model, name) = (fields.text("model")?, fields.text("name")?);
    let name = model.or(name).filter(|name| !name.is_empty());
    name.ok_or_else(|| ApiError::missing("model"))
}

/// An event for a client.
enum PullEvent {
    Line(Value),
    Done(Result<(), LibraryError>),
}

/// Begins a download on a thread of its own. It ends when nothing reads the lines any more.
fn begin(
    library: Arc<dyn Library>,
    name: String,
    turn: OwnedSemaphorePermit,
) -> Result<mpsc::Receiver<PullEvent>, ApiError> {
    let (send, lines) = mpsc::channel(BACKLOG);
    let work = move || {
        let _turn = turn;
        let last = Mutex::new((String::new(), Instant::now()));
        let told = |pulled: Pulled<'_>| {
            if send.is_closed() {
                return false;
            }
            let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let ends = pulled.completed == pulled.total;
            if last.0 == pulled.file && last.1.elapsed() < BETWEEN && !ends {
                return true;
            }
            *last = (pulled.file.to_owned(), Instant::now());
            let status = format!("pulling {}", pulled.file);
            let line = object!({"status": status, "digest": pulled.file, "total": pulled.total, "completed": pulled.completed});
            // A client that reads slowly misses lines.
            let _ = send.try_send(PullEvent::Line(line));
            true
        };
        let done = library.pull(&name, &told);
        let _ = send.blocking_send(PullEvent::Done(done));
    };
    let thread = thread::Builder::new().name("terrace-pull".into()).spawn(work);
    thread.map(|_| lines).map_err(|error| ApiError::internal(format!("no thread: {error}")))
}

/// A download that a client watches.
struct Pulling {
    lines: mpsc::Receiver<PullEvent>,
    ending: watch::Receiver<bool>,
    /// Why it failed.
    error: Option<ApiError>,
}

impl Pulling {
    /// The next line; `None` after the last one.
    async fn next(&mut self) -> Option<Value> {
        let Self { lines, ending, .. } = self;
        let ends = async {
            let _ = ending.wait_for(|ending| *ending).await;
        };
        let told = tokio::select! {
            told = lines.recv() => Some(told?),
            () = ends => None,
        };
        match told {
            None => self.failed(ApiError::stopping()),
            Some(PullEvent::Line(line)) => Some(line),
            Some(PullEvent::Done(Ok(()))) => Some(object!({"status": "success"})),
            Some(PullEvent::Done(Err(error))) => self.failed(error.into()),
        }
    }

    fn failed(&mut self, error: ApiError) -> Option<Value> {
        if self.error.is_some() {
            return None;
        }
        let line = object!({"error": error.message()});
        self.error = Some(error);
        Some(line)
    }
}
