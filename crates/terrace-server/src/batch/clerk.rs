//! The thread that answers a server's batches, one after the other, behind its clients.

use super::endpoints::Endpoints;
use super::error::BatchError;
use super::input::Input;
use super::journal::Journal;
use super::objects::{BatchErrors, BatchObject, Counts, FileObject, LineError, Status};
use super::progress::Progress;
use super::request::Request;
use super::run::{RunEnd, answer_all};
use super::shelf::Shelf;
use crate::app::{App, Ready};
use std::collections::HashSet;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::{JoinHandle, sleep};
use std::time::Duration;
use tokio::runtime::Builder;

/// Most requests of a batch, as with OpenAI.
const MAX_REQUESTS: usize = 50_000;
/// Most errors of a file that are told.
const MAX_ERRORS: usize = 100;
/// Time after which a batch is tried again that could not be written.
const AGAIN: Duration = Duration::from_secs(10);

/// The thread, until it is dropped. A batch that is not done goes on with the next server.
pub struct Clerk {
    shelf: Arc<Shelf>,
    thread: Option<JoinHandle<()>>,
}

impl Clerk {
    /// Starts to answer the batches of a server whose model is loaded. `None`: it has no directory for them.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(app: &Arc<App>) -> io::Result<Option<Self>> {
        let (Some(shelf), Ok(ready)) = (app.shelf.clone(), app.ready()) else { return Ok(None) };
        let desk = Desk { endpoints: Endpoints::of(app, true), shelf: Arc::clone(&shelf), ready };
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
        let work = move || {
            while let Some(batch) = desk.shelf.next_batch() {
                if let Err(error) = runtime.block_on(desk.work_on(&batch)) {
                    tracing::warn!("batch {}: {error}", batch.id);
                    desk.pause();
                }
            }
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("terrace-batches".into()).spawn(work)?;
        Ok(Some(Self { shelf, thread: Some(thread) }))
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.shelf.end();
        if let Some(thread) = self.thread.take() {
            // A panic was reported by its hook.
            let _ = thread.join();
        }
    }
}

/// State of the thread.
struct Desk {
    endpoints: Endpoints,
    shelf: Arc<Shelf>,
    ready: Arc<Ready>,
}

impl Desk {
    fn pause(&self) {
        const STEP: Duration = Duration::from_millis(100);
        let mut left = AGAIN;
        while !left.is_zero() && !self.shelf.is_ending() {
            sleep(STEP);
            left = left.saturating_sub(STEP);
        }
    }

    /// Takes a batch as far as it goes.
    ///
    /// # Errors
    /// A file cannot be written; the batch stays as it is.
    async fn work_on(&self, batch: &BatchObject) -> io::Result<()> {
        let shelf = &self.shelf;
        let enter = |status| shelf.change_batch(&batch.id, |batch| batch.enter(status)).map(drop);
        let input = match Input::open(&shelf.content(&batch.input_file_id)) {
            Ok(input) => input,
            Err(error) => return self.fail(batch, vec![of_file("invalid_file", error.to_string())]),
        };
        match batch.status {
            Status::Validating => {
                let errors = check(&input, &batch.endpoint);
                if !errors.is_empty() {
                    return self.fail(batch, errors);
                }
                let counts = Counts { total: input.len(), ..Counts::default() };
                shelf.change_batch(&batch.id, |batch| {
                    batch.request_counts = counts;
                    // It may have been cancelled meanwhile.
                    if batch.status == Status::Validating {
                        batch.enter(Status::InProgress);
                    }
                })?;
            }
            Status::InProgress | Status::Cancelling | Status::Finalizing => {}
            Status::Failed | Status::Completed | Status::Cancelled => return Ok(()),
        }
        let identity = &self.ready.facts.identity;
        let mut journal = match Journal::open(&shelf.journal(&batch.id), identity, &input) {
            Ok(journal) => journal,
            Err(error @ (BatchError::Io { .. } | BatchError::Locked(_))) => {
                return Err(io::Error::other(error.to_string()));
            }
            Err(error) => return self.fail(batch, vec![of_file("model_changed", error.to_string())]),
        };
        let is_cancelled = || shelf.batch(&batch.id).is_none_or(|batch| batch.status == Status::Cancelling);
        let mut watch = |progress: &Progress| {
            shelf.show_counts(&batch.id, counts(progress.requests, progress.done, progress.failed));
            if is_cancelled() || shelf.is_ending() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        if !is_cancelled() {
            // No more than are computed: others have the queue.
            let most = self.ready.facts.slots;
            let ended =
                answer_all(&self.endpoints, &self.ready, &input, &mut journal, most, &mut watch).await;
            match ended {
                Ok(RunEnd::Done) => enter(Status::Finalizing)?,
                Ok(RunEnd::Stopped) if is_cancelled() => {}
                // The server ends.
                Ok(RunEnd::Stopped) | Err(BatchError::Stopped(_)) => {
                    shelf.end();
                    return Ok(());
                }
                Err(error) => return Err(io::Error::other(error.to_string())),
            }
        }
        self.finish(batch, journal)
    }

    /// Writes the files of a batch that has ended.
    fn finish(&self, batch: &BatchObject, journal: Journal) -> io::Result<()> {
        let output = self.write(batch, &journal, false)?;
        let errors = self.write(batch, &journal, true)?;
        let (requests, done, failed) = (journal.requests(), journal.done(), journal.failed());
        self.shelf.change_batch(&batch.id, |batch| {
            (batch.output_file_id, batch.error_file_id) = (output, errors);
            batch.request_counts = counts(requests, done, failed);
            let cancelled = batch.status == Status::Cancelling;
            batch.enter(if cancelled { Status::Cancelled } else { Status::Completed });
        })?;
        journal.remove().map_err(|error| io::Error::other(error.to_string()))
    }

    /// Writes the answers that are failures, or all others, as a file. `None`: there are none.
    fn write(&self, batch: &BatchObject, journal: &Journal, failures: bool) -> io::Result<Option<String>> {
        let some = if failures { journal.failed() } else { journal.done() - journal.failed() };
        if some == 0 {
            return Ok(None);
        }
        let kind = if failures { "error" } else { "output" };
        let mut file = FileObject::new(0, format!("{}_{kind}.jsonl", batch.id), "batch_output".into());
        let part = self.shelf.begin_file(&file.id)?;
        let mut out = BufWriter::new(part.file());
        journal.write_answers(&mut out, Some(failures))?;
        out.flush()?;
        drop(out);
        file.bytes = part.file().metadata()?.len();
        Ok(Some(self.shelf.add_file(part, file)?.id))
    }

    fn fail(&self, batch: &BatchObject, errors: Vec<LineError>) -> io::Result<()> {
        let change = |batch: &mut BatchObject| {
            batch.errors = Some(BatchErrors::new(errors));
            batch.enter(Status::Failed);
        };
        self.shelf.change_batch(&batch.id, change).map(drop)
    }
}

fn counts(total: usize, done: usize, failed: usize) -> Counts {
    Counts { total, completed: done - failed, failed }
}

fn of_file(code: &str, message: String) -> LineError {
    LineError { code: code.into(), line: None, message, param: None }
}

/// Checks a file: as with OpenAI, a batch with a wrong line does not begin.
fn check(input: &Input, endpoint: &str) -> Vec<LineError> {
    if input.is_empty() {
        return vec![of_file("empty_file", "the file has no requests".into())];
    }
    if input.len() > MAX_REQUESTS {
        let message =
            format!("the file has {} requests, but at most {MAX_REQUESTS} are allowed", input.len());
        return vec![of_file("too_many_requests", message)];
    }
    let (mut errors, mut ids) = (Vec::new(), HashSet::new());
    for index in 0..input.len() {
        let line = match input.line(index) {
            Ok(line) => line,
            Err(error) => return vec![of_file("invalid_file", error.to_string())],
        };
        let wrong = |code: &str, message: String, param: Option<&str>| LineError {
            code: code.into(),
            line: Some(line.number),
            message,
            param: param.map(Into::into),
        };
        match Request::read(&line) {
            Err(refused) => errors.push(wrong(refused.code, refused.message, None)),
            Ok(request) if request.url != endpoint => {
                let message = format!("`url` is {}, but the batch is for {endpoint}", request.url);
                errors.push(wrong("mismatched_url", message, Some("url")));
            }
            Ok(request) => {
                let message = format!("another request has the custom_id {}", request.custom_id);
                if !ids.insert(request.custom_id) {
                    errors.push(wrong("duplicate_custom_id", message, Some("custom_id")));
                }
            }
        }
        if errors.len() == MAX_ERRORS {
            break;
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_lines_are_named_before_a_batch_begins() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let errors = |lines: &[&str]| {
            std::fs::write(file.path(), lines.join("\n")).unwrap();
            let errors = check(&Input::open(file.path()).unwrap(), "/v1/completions");
            errors.into_iter().map(|error| (error.line, error.code)).collect::<Vec<_>>()
        };
        let of = |id: &str, url: &str| {
            format!("{{\"custom_id\": \"{id}\", \"url\": \"{url}\", \"body\": {{\"prompt\": \"x\"}}}}")
        };
        let (a, b) = (of("a", "/v1/completions"), of("b", "/v1/completions"));
        let chat = of("c", "/v1/chat/completions");
        assert_eq!(errors(&[&a, &b]), []);
        assert_eq!(errors(&[]), [(None, "empty_file".into())]);
        let wrong = errors(&[&a, "nonsense", "", &a, &chat]);
        let expected = [(2, "invalid_json_line"), (4, "duplicate_custom_id"), (5, "mismatched_url")]
            .map(|(line, code)| (Some(line), code.to_owned()));
        assert_eq!(wrong, expected);
    }
}
