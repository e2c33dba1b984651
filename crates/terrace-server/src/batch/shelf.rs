//! The files and batches of a server, in a directory of the operator's:
//!
//! ```text
//! files/file-...         what a client uploaded, or what a batch wrote
//! files/file-....json    its object; a file without one is not there
//! batches/batch_....json     a batch's object
//! batches/batch_....partial  the journal of its answers, while it runs
//! ```
//!
//! Objects are replaced whole, so a server that is killed finds each as it was before or after a change.

use super::objects::{BatchObject, Counts, FileObject};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use terrace_platform::input_file;
use terrace_platform::own_file::{Form, OwnFile};
use terrace_store::part_file::PartFile;
use terrace_store::replace_cache_file;

/// Uploads of clients and answers of batches: new files only.
const CONTENT: OwnFile = OwnFile::new("empty", Form::Unmarked);
/// Ending of the files with objects.
const OBJECT: &str = "json";
/// Largest object in bytes: that of a batch has some metadata.
const MAX_OBJECT: u64 = 1 << 20;

/// The files and batches.
#[derive(Debug)]
pub struct Shelf {
    files_dir: PathBuf,
    batches_dir: PathBuf,
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, FileObject>,
    batches: BTreeMap<String, BatchObject>,
    ending: bool,
}

impl Shelf {
    /// Opens a directory, which is made if it is not there.
    ///
    /// # Errors
    /// The system's, with the path; an object that cannot be read.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let (files_dir, batches_dir) = (dir.join("files"), dir.join("batches"));
        let mut state = State::default();
        for dir in [&files_dir, &batches_dir] {
            fs::create_dir_all(dir).map_err(|error| named(dir, &error))?;
        }
        objects(&files_dir, |file: FileObject| drop(state.files.insert(file.id.clone(), file)))?;
        objects(&batches_dir, |batch: BatchObject| drop(state.batches.insert(batch.id.clone(), batch)))?;
        Ok(Self { files_dir, batches_dir, state: Mutex::new(state), news: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Path of a file's content. Only for the ids of objects.
    pub fn content(&self, id: &str) -> PathBuf {
        self.files_dir.join(id)
    }

    /// Path of a batch's journal.
    pub fn journal(&self, id: &str) -> PathBuf {
        self.batches_dir.join(format!("{id}.partial"))
    }

    /// Begins a file. It is there once [`Shelf::add_file`] has its object.
    ///
    /// # Errors
    /// The system's.
    pub fn begin_file(&self, id: &str) -> io::Result<PartFile> {
        PartFile::create(&self.content(id), &CONTENT)
    }

    /// Adds a file whose content is complete.
    ///
    /// # Errors
    /// The system's.
    pub fn add_file(&self, part: PartFile, file: FileObject) -> io::Result<FileObject> {
        part.seal()?.publish()?;
        save(&self.files_dir, &file.id, &file)?;
        self.state().files.insert(file.id.clone(), file.clone());
        Ok(file)
    }

    /// A file's object.
    pub fn file(&self, id: &str) -> Option<FileObject> {
        self.state().files.get(id).cloned()
    }

    /// All files, the newest first.
    pub fn files(&self) -> Vec<FileObject> {
        let mut all: Vec<FileObject> = self.state().files.values().cloned().collect();
        all.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        all
    }

    /// Deletes a file. Returns false if a batch still needs it.
    ///
    /// # Errors
    /// The system's.
    pub fn delete_file(&self, id: &str) -> io::Result<bool> {
        let mut state = self.state();
        let needs = |batch: &BatchObject| batch.input_file_id == id && !batch.status.is_final();
        if state.batches.values().any(needs) {
            return Ok(false);
        }
        // Without its object, it is not there.
        remove(&self.files_dir.join(format!("{id}.{OBJECT}")))?;
        state.files.remove(id);
        drop(state);
        remove(&self.content(id))?;
        Ok(true)
    }

    /// Adds a batch.
    ///
    /// # Errors
    /// The system's.
    pub fn add_batch(&self, batch: BatchObject) -> io::Result<()> {
        save(&self.batches_dir, &batch.id, &batch)?;
        self.state().batches.insert(batch.id.clone(), batch);
        self.news.notify_all();
        Ok(())
    }

    /// A batch.
    pub fn batch(&self, id: &str) -> Option<BatchObject> {
        self.state().batches.get(id).cloned()
    }

    /// All batches, the newest first.
    pub fn batches(&self) -> Vec<BatchObject> {
        let mut all: Vec<BatchObject> = self.state().batches.values().cloned().collect();
        all.sort_by(|a, b| (b.created_at, &b.id).cmp(&(a.created_at, &a.id)));
        all
    }

    /// Changes a batch, and keeps the change. `None`: there is no such batch.
    ///
    /// # Errors
    /// The system's; nothing has changed then.
    pub fn change_batch(
        &self,
        id: &str,
        change: impl FnOnce(&mut BatchObject),
    ) -> io::Result<Option<BatchObject>> {
        let mut state = self.state();
        let Some(batch) = state.batches.get_mut(id) else { return Ok(None) };
        let mut changed = batch.clone();
        change(&mut changed);
        if changed != *batch {
            save(&self.batches_dir, id, &changed)?;
            batch.clone_from(&changed);
            self.news.notify_all();
        }
        Ok(Some(changed))
    }

    /// Shows how far a batch is. This is not kept: its journal tells.
    pub fn show_counts(&self, id: &str, counts: Counts) {
        if let Some(batch) = self.state().batches.get_mut(id) {
            batch.request_counts = counts;
        }
    }

    /// Has [`Shelf::next_batch`] return `None` from now on.
    pub fn end(&self) {
        self.state().ending = true;
        self.news.notify_all();
    }

    /// Returns true after [`Shelf::end`].
    pub fn is_ending(&self) -> bool {
        self.state().ending
    }

    /// Waits for a batch that is not done, and returns the oldest one; `None`: none is to begin any more.
    pub fn next_batch(&self) -> Option<BatchObject> {
        let mut state = self.state();
        while !state.ending {
            let open = state.batches.values().filter(|batch| !batch.status.is_final());
            if let Some(next) = open.min_by_key(|batch| (batch.created_at, &batch.id)) {
                return Some(next.clone());
            }
            state = self.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }
}

fn save(dir: &Path, id: &str, object: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(object).expect("plain data");
    replace_cache_file(&dir.join(format!("{id}.{OBJECT}")), &bytes)
}

/// Reads all objects of a folder.
fn objects<T: DeserializeOwned>(dir: &Path, mut add: impl FnMut(T)) -> io::Result<()> {
    let entries = fs::read_dir(dir).map_err(|error| named(dir, &error))?;
    for entry in entries {
        let path = entry.map_err(|error| named(dir, &error))?.path();
        if path.extension().is_some_and(|ending| ending == OBJECT) {
            let text = input_file::read_regular(&path, MAX_OBJECT).map_err(|error| named(&path, &error))?;
            let object = serde_json::from_slice(&text).map_err(|error| named(&path, &error.into()))?;
            add(object);
        }
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(named(path, &error)),
        _ => Ok(()),
    }
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::objects::Status;
    use super::*;
    use std::io::Write;

    fn batch(input: &str) -> BatchObject {
        BatchObject::new("/v1/completions".into(), "m".into(), input.into(), "24h".into(), None)
    }

    #[test]
    fn a_shelf_is_found_again_as_it_was_left() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::open(dir.path()).unwrap();
        let file = FileObject::new(5, "in.jsonl".into(), "batch".into());
        let part = shelf.begin_file(&file.id).unwrap();
        part.file().write_all(b"hello").unwrap();
        let file = shelf.add_file(part, file).unwrap();
        // Of an upload that was never complete, nothing is left.
        drop(shelf.begin_file("file-other").unwrap());
        let first = batch(&file.id);
        shelf.add_batch(first.clone()).unwrap();
        shelf.change_batch(&first.id, |batch| batch.enter(Status::InProgress)).unwrap();
        let shelf = Shelf::open(dir.path()).unwrap();
        assert_eq!(shelf.files(), std::slice::from_ref(&file));
        assert_eq!(fs::read(shelf.content(&file.id)).unwrap(), b"hello");
        let kept = shelf.batch(&first.id).unwrap();
        assert_eq!(kept.status, Status::InProgress);
        assert!(kept.in_progress_at.is_some());
        assert_eq!(shelf.next_batch().unwrap().id, first.id);
        assert!(!shelf.delete_file(&file.id).unwrap(), "a batch needs it");
        shelf.change_batch(&first.id, |batch| batch.enter(Status::Cancelled)).unwrap();
        assert!(shelf.delete_file(&file.id).unwrap());
        assert!(Shelf::open(dir.path()).unwrap().files().is_empty());
        shelf.end();
        assert!(shelf.next_batch().is_none());
    }
}
