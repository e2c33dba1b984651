//! Kept conversations in files of a directory, read and written by a thread of their own.

use super::disk_index::DiskIndex;
use super::file::{FILE, read_file, write_file};
use super::kept::Kept;
use super::key::CacheKey;
use super::usable::{Memory, Usable};
use crate::adapters::Scales;
use crate::file_error::{FileError, FileRole};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use terrace_platform::owner;

/// Most conversations that wait to be written. Their copies are in RAM until then.
const MOST_WAITING: usize = 2;

/// Work of the thread.
enum Work {
    Write(PathBuf, Arc<Kept>),
    Read(PathBuf),
}

/// Result of the thread's work.
enum Done {
    Wrote(PathBuf, Arc<Kept>, io::Result<u64>),
    Read(PathBuf, Result<Kept, String>),
}

/// A conversation that was read, or the reason why it could not be.
pub type ReadBack = (PathBuf, Option<Arc<Kept>>);

/// Kept conversations of one directory.
pub struct DiskCache {
    key: CacheKey,
    index: DiskIndex,
    memory: Memory,
    work: Option<Sender<Work>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
    /// Tokens of the conversations that wait to be written.
    waiting: Vec<Arc<Kept>>,
    written: u64,
    /// True if a failed write was reported.
    told: bool,
}

impl DiskCache {
    /// Opens a directory, which is made if it does not exist, for conversations of at most `context`
    /// tokens.
    ///
    /// # Errors
    /// The directory cannot be used, or other users may write to it.
    pub(crate) fn open(
        dir: &Path,
        limit: u64,
        key: CacheKey,
        (memory, context): (Memory, usize),
    ) -> Result<Self, FileError> {
        let wrong = |reason: String| FileError { role: FileRole::PromptCache, path: dir.into(), reason };
        let index = own_directory(dir)
            .and_then(|()| DiskIndex::scan(dir, limit, context, &key))
            .map_err(|error| wrong(error.to_string()))?;
        let (work, todo) = channel();
        let (tell, done) = channel();
        let keyed = key.clone();
        let thread = std::thread::Builder::new()
            .name("prompt-cache".into())
            .spawn(move || run(&todo, &tell, &keyed, context))
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Self {
            key,
            index,
            memory,
            work: Some(work),
            done,
            thread: Some(thread),
            waiting: Vec::new(),
            written: 0,
            told: false,
        })
    }

    /// The conversation that saves most of a prompt for the same adapters.
    pub fn find(&self, prompt: &[i32], scales: &Scales) -> Option<(PathBuf, Usable)> {
        self.index.find(self.memory, prompt, scales)
    }

    /// Returns true if a conversation that begins with these tokens, computed with these adapters, is there or
    /// waits to be written.
    pub fn covers(&self, tokens: &[i32], scales: &Scales) -> bool {
        let waits = |kept: &Arc<Kept>| kept.tokens == tokens && kept.scales == *scales;
        self.index.covers(self.memory, tokens, scales) || self.waiting.iter().any(waits)
    }

    /// Returns true if another conversation can be written now.
    pub fn has_room(&self) -> bool {
        self.waiting.len() < MOST_WAITING
    }

    /// Has a conversation written, if that is worth it and not too many wait.
    pub fn write(&mut self, kept: &Arc<Kept>) {
        if self.has_room() && !self.covers(&kept.tokens, &kept.scales) && self.index.make_room(kept.bytes()) {
            self.waiting.push(Arc::clone(kept));
            let path = self.index.path(&self.key, &kept.tokens, &kept.scales);
            self.ask(Work::Write(path, Arc::clone(kept)));
        }
    }

    /// Has a conversation read.
    pub fn read(&mut self, path: PathBuf) {
        self.index.was_used(&path);
        self.ask(Work::Read(path));
    }

    fn ask(&self, work: Work) {
        if let Some(thread) = &self.work {
            let _ = thread.send(work);
        }
    }

    /// Notes what the thread has done, and waits for that for up to `most`. Returns what was read.
    pub fn settle(&mut self, most: Duration) -> Vec<ReadBack> {
        let mut read = Vec::new();
        let mut next = self.done.recv_timeout(most).ok();
        while let Some(done) = next {
            read.extend(self.note(done));
            next = self.done.try_recv().ok();
        }
        read
    }

    fn note(&mut self, done: Done) -> Option<ReadBack> {
        match done {
            Done::Wrote(path, kept, result) => {
                self.waiting.retain(|waiting| !Arc::ptr_eq(waiting, &kept));
                match result {
                    Ok(bytes) => {
                        self.written += 1;
                        self.index.wrote(self.memory, path, bytes, &kept);
                    }
                    Err(error) if !self.told => {
                        self.told = true;
                        tracing::warn!("cannot keep a conversation in {}: {error}", path.display());
                    }
                    Err(_) => {}
                }
                None
            }
            Done::Read(path, Ok(kept)) => Some((path, Some(Arc::new(kept)))),
            Done::Read(path, Err(reason)) => {
                self.index.lost(&path, &reason);
                Some((path, None))
            }
        }
    }

    /// The directory's state.
    pub const fn index(&self) -> &DiskIndex {
        &self.index
    }

    /// Number of conversations that were written.
    pub const fn written(&self) -> u64 {
        self.written
    }
}

impl Drop for DiskCache {
    /// Waits until everything is written.
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes a directory, or checks that nobody else can write to it.
fn own_directory(dir: &Path) -> io::Result<()> {
    owner::make_own_folders(dir)?;
    if !dir.metadata()?.is_dir() {
        return Err(io::Error::other("not a directory"));
    }
    if !owner::is_own_folder(dir)? {
        return Err(io::Error::other("other users can write to this directory"));
    }
    // An error now, and not at the end of the first conversation.
    tempfile::tempfile_in(dir).map(drop)
}

/// The thread: does what it is asked to in turn, until nobody can ask any more.
fn run(todo: &Receiver<Work>, tell: &Sender<Done>, key: &CacheKey, context: usize) {
    while let Ok(work) = todo.recv() {
        let done = match work {
            Work::Write(path, kept) => {
                let result = write(&path, key, &kept);
                Done::Wrote(path, kept, result)
            }
            Work::Read(path) => {
                let read = read_file(&path, key, context);
                Done::Read(path, read)
            }
        };
        let _ = tell.send(done);
    }
}

/// Writes a file that only its owner can read, and that is there whole or not at all.
fn write(path: &Path, key: &CacheKey, kept: &Kept) -> io::Result<u64> {
    terrace_store::replace_own_file_with(path, &FILE, |file| {
        write_file(file, key, kept)?;
        file.flush()
    })?;
    Ok(path.metadata()?.len())
}
