//! Answers the requests of a batch, many at a time.

use super::answer::Answer;
use super::endpoints::{Endpoints, Gone};
use super::error::BatchError;
use super::input::Input;
use super::journal::Journal;
use super::progress::{Began, Progress};
use super::request::Request;
use crate::app::{App, Ready};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Interval at which a batch is watched.
const TICK: Duration = Duration::from_millis(200);
/// Longest time that answers may be missing on the disk.
const SYNC: Duration = Duration::from_secs(1);
/// Threads that read requests and tokenise: computing needs the CPU more.
const READERS: usize = 2;

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// All requests have answers.
    Done,
    /// It was told to stop; the journal has what was answered.
    Stopped,
}

/// Answers all requests that the journal has no answer to, on this thread. `watch` is told five times a second how far
/// it is, and once at the end; `Break` stops the run.
///
/// # Errors
/// A file cannot be read or written, or the model is lost. The journal has what was answered.
pub fn run(
    app: &Arc<App>,
    input: &Input,
    journal: &mut Journal,
    watch: &mut (dyn FnMut(&Progress) -> ControlFlow<()> + Send),
) -> Result<RunEnd, BatchError> {
    let stopped = |reason: &dyn ToString| BatchError::Stopped(reason.to_string());
    let ready = app.ready().map_err(|error| stopped(&error.message()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(READERS)
        .build()
        .map_err(|error| stopped(&error))?;
    // As many wait as are computed, so that a slot that becomes free never does.
    let most = 2 * ready.facts.slots + READERS;
    let endpoints = Endpoints::of(app, false);
    let ended = runtime.block_on(answer_all(&endpoints, &ready, input, journal, most, watch));
    // A request that is being read may take long.
    runtime.shutdown_background();
    ended
}

/// Answers all requests that the journal has no answer to, `most` at a time.
///
/// # Errors
/// As [`run`].
pub(super) async fn answer_all(
    endpoints: &Endpoints,
    ready: &Ready,
    input: &Input,
    journal: &mut Journal,
    most: usize,
    watch: &mut (dyn FnMut(&Progress) -> ControlFlow<()> + Send),
) -> Result<RunEnd, BatchError> {
    let began = Began::now(ready, journal);
    let mut running = FuturesUnordered::new();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut next, mut synced) = (0, Instant::now());
    let ended = loop {
        while running.len() < most && next < input.len() {
            let index = next;
            next += 1;
            if journal.has(index) {
                continue;
            }
            let line = input.line(index)?;
            match Request::read(&line) {
                Ok(request) => running.push(async move {
                    let responded = endpoints.ask(&request).await;
                    (index, line.digest, responded.map(|responded| Answer::of(request.custom_id, responded)))
                }),
                Err(refused) => add(journal, index, &line.digest, &Answer::refused(refused))?,
            }
        }
        if running.is_empty() {
            break RunEnd::Done;
        }
        tokio::select! {
            Some((index, digest, answered)) = running.next() => match answered {
                Ok(answer) => add(journal, index, &digest, &answer)?,
                Err(Gone(reason)) => {
                    journal.sync()?;
                    return Err(BatchError::Stopped(reason));
                }
            },
            _ = ticks.tick() => {
                if synced.elapsed() >= SYNC {
                    journal.sync()?;
                    synced = Instant::now();
                }
                if watch(&began.progress(ready, journal)).is_break() {
                    break RunEnd::Stopped;
                }
            }
        }
    };
    journal.sync()?;
    let _ = watch(&began.progress(ready, journal));
    Ok(ended)
}

fn add(journal: &mut Journal, index: usize, digest: &str, answer: &Answer) -> Result<(), BatchError> {
    journal.add(index, digest, &answer.to_line(), answer.has_failed())
}
