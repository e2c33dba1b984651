//! The journal of a batch: its answers in the order in which they came.
//!
//! The output has the order of the requests, but answers end in another one. So each goes into the journal at once, as a
//! whole line, and the output is made of it when all are there. A process that is killed loses nothing that it has
//! written; after a power cut, what was written since the last [`Journal::sync`] may be missing, and is computed again.
//! A last line that is not whole is dropped.

use super::answer::is_failure;
use super::error::BatchError;
use super::input::Input;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use terrace_model::identity::ModelIdentity;
use terrace_model::parse_reason;
use terrace_platform::lock;
use terrace_platform::own_file::{Form, OwnFile};

/// Version of the format.
const VERSION: u32 = 1;
/// The journal.
pub const JOURNAL: OwnFile = OwnFile::new("the journal of a batch", Form::Begins(b"{\"batch\""));
/// The output that is made of it.
pub const ANSWERS: OwnFile = OwnFile::new("the answers of a batch", Form::Begins(b"{\"id\":\"batch_req_"));

/// The first line: whose answers these are.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    /// Version of the format.
    batch: u32,
    model: ModelIdentity,
}

/// A line after the first.
#[derive(Deserialize)]
struct Entry {
    /// Index of the request.
    request: usize,
    /// Digest of its line.
    line: String,
    answer: Judged,
}

/// The part of an answer that the journal needs.
#[derive(Deserialize)]
struct Judged {
    response: Option<Status>,
}

#[derive(Deserialize)]
struct Status {
    status_code: u16,
    #[serde(rename = "body")]
    _body: IgnoredAny,
}

/// An answer in the file.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: u64,
    bytes: u64,
    failed: bool,
}

/// The answers so far, in a file that is locked against other writers.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    end: u64,
    /// By request.
    answers: Vec<Option<Place>>,
    done: usize,
    failed: usize,
    unsynced: bool,
}

impl Journal {
    /// Opens or creates the journal of a model's answers to these requests.
    ///
    /// # Errors
    /// The file is no journal, or one of other requests or of another model, or another process writes it.
    pub fn open(path: &Path, model: &ModelIdentity, input: &Input) -> Result<Self, BatchError> {
        JOURNAL.check(path).map_err(BatchError::io(path))?;
        let file = open(path).map_err(BatchError::io(path))?;
        match lock::try_lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(BatchError::Locked(path.into())),
            Err(TryLockError::Error(source)) => return Err(BatchError::io(path)(source)),
        }
        let answers = vec![None; input.len()];
        let mut journal =
            Self { path: path.into(), file, end: 0, answers, done: 0, failed: 0, unsynced: false };
        let header = Header { batch: VERSION, model: model.clone() };
        journal.read(&header, input)?;
        journal.file.set_len(journal.end).map_err(BatchError::io(path))?;
        if journal.end == 0 {
            let mut line = serde_json::to_vec(&header).expect("plain data");
            line.push(b'\n');
            journal.append(&line)?;
        }
        Ok(journal)
    }

    /// Reads all whole lines.
    fn read(&mut self, expected: &Header, input: &Input) -> Result<(), BatchError> {
        let path = self.path.clone();
        let io = |source| BatchError::Io { path: path.clone(), source };
        let mut reader = BufReader::new(self.file.try_clone().map_err(io)?);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            reader.read_until(b'\n', &mut line).map_err(io)?;
            if line.pop() != Some(b'\n') {
                return Ok(());
            }
            let wrong = |error: serde_json::Error| BatchError::Journal {
                path: path.clone(),
                line: number,
                reason: parse_reason(&error),
            };
            if number == 1 {
                let header: Header = serde_json::from_slice(&line).map_err(wrong)?;
                if header != *expected {
                    let what = format!("of another model, {}", header.model.name);
                    return Err(BatchError::Other { path, what });
                }
            } else {
                let entry: Entry = serde_json::from_slice(&line).map_err(wrong)?;
                let Entry { request, line: digest, answer } = entry;
                if request >= input.len() || input.line(request)?.digest != digest {
                    let what = format!("to requests other than the {} in the input", input.len());
                    return Err(BatchError::Other { path, what });
                }
                let before = before_answer(request, &digest).len() as u64;
                let failed = is_failure(answer.response.map(|response| response.status_code));
                let bytes = line.len() as u64 - before - 1;
                self.note(request, Place { at: self.end + before, bytes, failed });
            }
            self.end += line.len() as u64 + 1;
        }
        Ok(())
    }

    fn note(&mut self, request: usize, place: Place) {
        // Of several, the last one counts.
        match self.answers[request].replace(place) {
            None => self.done += 1,
            Some(before) => self.failed -= usize::from(before.failed),
        }
        self.failed += usize::from(place.failed);
    }

    fn append(&mut self, line: &[u8]) -> Result<(), BatchError> {
        let written = self.file.seek(SeekFrom::Start(self.end)).and_then(|_| self.file.write_all(line));
        if let Err(source) = written {
            // No half of a line stays before the next one.
            let _ = self.file.set_len(self.end);
            return Err(BatchError::io(&self.path)(source));
        }
        self.end += line.len() as u64;
        self.unsynced = true;
        Ok(())
    }

    /// Adds the answer to a request, JSON in one line.
    ///
    /// # Errors
    /// The system's; the answer is not in the journal then.
    pub(super) fn add(
        &mut self,
        request: usize,
        digest: &str,
        answer: &str,
        failed: bool,
    ) -> Result<(), BatchError> {
        let before = before_answer(request, digest);
        let at = self.end + before.len() as u64;
        self.append(format!("{before}{answer}}}\n").as_bytes())?;
        self.note(request, Place { at, bytes: answer.len() as u64, failed });
        Ok(())
    }

    /// Has all answers reach the disk.
    ///
    /// # Errors
    /// The system's.
    pub fn sync(&mut self) -> Result<(), BatchError> {
        if std::mem::take(&mut self.unsynced) {
            self.file.sync_data().map_err(BatchError::io(&self.path))?;
        }
        Ok(())
    }

    /// Has requests that failed answered again.
    pub fn forget_failures(&mut self) {
        let failures = self.answers.iter_mut().filter(|place| place.is_some_and(|place| place.failed));
        failures.for_each(|place| *place = None);
        self.done -= std::mem::take(&mut self.failed);
    }

    /// Returns whether a request has been answered.
    pub fn has(&self, request: usize) -> bool {
        self.answers[request].is_some()
    }

    /// Number of requests.
    pub const fn requests(&self) -> usize {
        self.answers.len()
    }

    /// Number of answers.
    pub const fn done(&self) -> usize {
        self.done
    }

    /// Number of answers that are failures.
    pub const fn failed(&self) -> usize {
        self.failed
    }

    /// Writes the answers in the order of the requests: all, only failures, or all but these.
    ///
    /// # Errors
    /// The system's.
    pub fn write_answers(&self, out: &mut dyn Write, failures: Option<bool>) -> io::Result<()> {
        let mut file = &self.file;
        let wanted = |place: &&Place| failures.is_none_or(|failures| place.failed == failures);
        for place in self.answers.iter().flatten().filter(wanted) {
            file.seek(SeekFrom::Start(place.at))?;
            let copied = io::copy(&mut file.take(place.bytes), out)?;
            if copied != place.bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Removes the file.
    ///
    /// # Errors
    /// The system's.
    pub fn remove(self) -> Result<(), BatchError> {
        std::fs::remove_file(&self.path).map_err(BatchError::io(&self.path))
    }
}

/// The beginning of an answer's line.
fn before_answer(request: usize, digest: &str) -> String {
    format!("{{\"request\":{request},\"line\":\"{digest}\",\"answer\":")
}

/// Opens the file to read and to add to.
#[expect(clippy::disallowed_methods, reason = "a journal is written in place, line by line")]
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    const GOOD: &str = r#"{"id":"batch_req_1","response":{"status_code":200,"body":{}},"error":null}"#;
    const BAD: &str = r#"{"id":"batch_req_2","response":null,"error":{"code":"c","message":"m"}}"#;

    fn model(name: &str) -> ModelIdentity {
        ModelIdentity { name: name.into(), layers: 1, bytes: 1 }
    }

    fn input(dir: &TempDir, lines: &str) -> Input {
        let path = dir.path().join("in");
        std::fs::write(&path, lines).unwrap();
        Input::open(&path).unwrap()
    }

    fn written(journal: &Journal, failures: Option<bool>) -> String {
        let mut out = Vec::new();
        journal.write_answers(&mut out, failures).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn answers_come_back_in_the_order_of_requests_and_torn_ones_are_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let input = input(&dir, "a\nb\nc\n");
        let path = dir.path().join("journal");
        let open = || Journal::open(&path, &model("m"), &input);
        let digest = |request: usize| input.line(request).unwrap().digest;
        let mut journal = open().unwrap();
        assert!(matches!(open(), Err(BatchError::Locked(_))));
        journal.add(2, &digest(2), GOOD, false).unwrap();
        journal.add(0, &digest(0), BAD, true).unwrap();
        assert_eq!(written(&journal, None), format!("{BAD}\n{GOOD}\n"));
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        let third = format!("{}{GOOD}}}\n", before_answer(1, &digest(1)));
        for cut in [0, 1, 20, third.len() - 1] {
            std::fs::write(&path, [&whole, &third.as_bytes()[..cut]].concat()).unwrap();
            let journal = open().unwrap();
            assert_eq!((journal.done(), journal.failed(), journal.has(1)), (2, 1, false), "{cut}");
            assert_eq!(written(&journal, Some(true)), format!("{BAD}\n"));
            assert_eq!(std::fs::metadata(&path).unwrap().len(), whole.len() as u64);
        }
        let mut journal = open().unwrap();
        journal.add(1, &digest(1), GOOD, false).unwrap();
        drop(journal);
        let mut journal = open().unwrap();
        assert_eq!(written(&journal, None), format!("{BAD}\n{GOOD}\n{GOOD}\n"));
        journal.forget_failures();
        assert_eq!((journal.done(), journal.failed(), journal.has(0)), (2, 0, false));
        journal.add(0, &digest(0), GOOD, false).unwrap();
        drop(journal);
        let journal = open().unwrap();
        assert_eq!((journal.done(), journal.failed()), (3, 0));
        assert_eq!(written(&journal, None), format!("{GOOD}\n{GOOD}\n{GOOD}\n"));
    }

    #[test]
    fn journals_of_other_batches_are_refused_and_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let one = input(&dir, "a\nb\n");
        let mut journal = Journal::open(&path, &model("m"), &one).unwrap();
        journal.add(1, &one.line(1).unwrap().digest, GOOD, false).unwrap();
        drop(journal);
        let before = std::fs::read(&path).unwrap();
        let why = |model: &ModelIdentity, lines: &str| {
            Journal::open(&path, model, &input(&dir, lines)).map(|_| ()).unwrap_err().to_string()
        };
        assert!(why(&model("n"), "a\nb\n").ends_with("of another model, m"));
        assert!(why(&model("m"), "a\n").contains("to requests other than"));
        assert!(why(&model("m"), "a\nc\n").contains("to requests other than"));
        assert_eq!(std::fs::read(&path).unwrap(), before);
        // A request more is the same batch.
        assert_eq!(Journal::open(&path, &model("m"), &input(&dir, "a\nb\nc\n")).unwrap().done(), 1);
        std::fs::write(&path, "my text").unwrap();
        assert!(Journal::open(&path, &model("m"), &one).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"my text");
    }
}
