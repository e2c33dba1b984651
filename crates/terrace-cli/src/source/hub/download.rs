//! One file, from a hub into the cache: resumed where it stopped, checked before it counts.

use super::HubError;
use super::arriving::NoAnswer;
use super::http::{ATTEMPTS, FIRST_WAIT, Http};
use super::metadata::RemoteFile;
use crate::term::progress;
use crate::term::say;
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;
use terrace_model::{ByteSize, excerpt};
use terrace_platform::file::{self, FileId, Positioned, free_space, open_no_link};
use terrace_platform::lock;
use ureq::http::header::{CONTENT_ENCODING, CONTENT_RANGE, ETAG};
use ureq::http::{StatusCode, Uri};

/// Bytes fetched again when a download goes on, and compared with those on disk: a server that
/// ignores the range and starts over, or sends something else by now, is found out before its bytes
/// are mixed in.
const OVERLAP: u64 = 64 << 10;

/// Interval at which a download by another process is checked.
const LOCK_LOOK: Duration = Duration::from_millis(200);
/// Times in a row that a file may be gone after the wait for it; each is a download that another
/// process ended.
const MAX_LOCKED: u32 = 100;

/// Receives the progress of a file: its name, the bytes that are there, all bytes. Returns true if it is
/// still wanted.
pub type Watch<'w> = dyn Fn(&str, u64, u64) -> bool + Send + Sync + 'w;

/// A file to download.
pub struct Download<'a> {
    pub http: &'a Http,
    /// Its address.
    pub url: &'a Uri,
    /// Its path there.
    pub name: &'a str,
    /// Its expected properties.
    pub remote: &'a RemoteFile,
    /// Its destination.
    pub blob: &'a Path,
    /// Receives the progress.
    pub watch: &'a Watch<'a>,
}

impl Download<'_> {
    /// Fetches what is missing. The file appears under its name only whole and verified; until then
    /// it is `….incomplete` beside it, as other clients of the hub name it.
    pub fn run(&self) -> Result<(), HubError> {
        let folder = self.blob.parent().expect("a blob has a folder");
        std::fs::create_dir_all(folder).map_err(|e| HubError::cache(folder, e))?;
        let partial = PathBuf::from(format!("{}.incomplete", self.blob.display()));
        let mut file = self.open_locked(&partial)?;
        if self.is_whole() {
            // Another process was faster, and this one held an empty file.
            return remove_own(&file, &partial);
        }
        let bar = self.bar();
        self.fetch(&mut file, &partial, folder, &bar)?;
        bar.finish_and_clear();
        self.verify(&mut file, &partial)?;
        file.sync_all().map_err(|e| HubError::cache(&partial, e))?;
        // What is renamed is what was verified.
        if !is_at(&file, &partial) {
            return Err(HubError::Replaced(partial));
        }
        file::replace(&partial, self.blob).map_err(|e| HubError::cache(self.blob, e))
    }

    /// Returns true if the file is there, in the length that the hub says. One of another length is damaged,
    /// and is replaced.
    pub fn is_whole(&self) -> bool {
        self.blob.metadata().is_ok_and(|there| there.is_file() && there.len() == self.remote.size)
    }

    fn fetch(
        &self,
        file: &mut File,
        partial: &Path,
        folder: &Path,
        bar: &ProgressBar,
    ) -> Result<(), HubError> {
        let size = self.remote.size;
        let mut arrived =
            Arrived { have: file.metadata().map_err(|e| HubError::cache(partial, e))?.len(), version: None };
        if arrived.have > size {
            // Of another download of the same name; nothing in it can be trusted.
            file.set_len(0).map_err(|e| HubError::cache(partial, e))?;
            arrived.have = 0;
        }
        self.check_space(folder, size - arrived.have)?;
        let (mut failures, mut wait) = (0, FIRST_WAIT);
        // Bytes that come again are no progress: a server that starts over would never end.
        let mut highest = arrived.have;
        while arrived.have < size {
            bar.set_position(arrived.have);
            // The rate and the time left are those of this download, not of what was there.
            bar.reset_eta();
            let reason = match self.attempt(file, partial, &mut arrived, bar) {
                Ok(()) if arrived.have == size => break,
                Ok(()) => "the connection closed early".to_owned(),
                Err(Attempt::Fatal(error)) => return Err(error),
                Err(Attempt::Again(reason)) => reason,
            };
            let have = arrived.have;
            if have > highest {
                (failures, wait, highest) = (0, FIRST_WAIT, have);
            }
            failures += 1;
            if failures >= ATTEMPTS {
                return Err(self.broken(have, reason));
            }
            tracing::info!("{}: {reason} at byte {have} of {size}; resuming", self.url);
            self.http.pause(wait)?;
            wait *= 2;
        }
        Ok(())
    }

    /// One request for all that is missing; `arrived` follows what is on disk.
    fn attempt(
        &self,
        file: &File,
        partial: &Path,
        arrived: &mut Arrived,
        bar: &ProgressBar,
    ) -> Result<(), Attempt> {
        let cache = |e| Attempt::Fatal(HubError::cache(partial, e));
        let start = arrived.have - arrived.have.min(OVERLAP);
        let range = start..self.remote.size;
        let mut answer = self.http.get(self.url, Some(&range)).map_err(again)?;
        // Without ranges, the file comes from its beginning, and is compared with what is there.
        let mut at = match answer.status {
            StatusCode::OK => 0,
            StatusCode::PARTIAL_CONTENT => start,
            status => {
                let reason = format!("the server answered {status}");
                return Err(match answer.is_passing() {
                    true => Attempt::Again(reason),
                    false => Attempt::Fatal(self.broken(arrived.have, reason)),
                });
            }
        };
        if let Some(encoding) = answer.text(CONTENT_ENCODING.as_str()).filter(|e| *e != "identity") {
            let reason = format!("the server sends it encoded as {}", excerpt(encoding, 40));
            return Err(Attempt::Fatal(self.broken(arrived.have, reason)));
        }
        let other_range = answer.status == StatusCode::PARTIAL_CONTENT
            && answer.text(CONTENT_RANGE.as_str()).is_some_and(|range| first_byte(range) != Some(start));
        if other_range {
            return Err(Attempt::Again("the server sent a different range than requested".into()));
        }
        let restart = |arrived: &mut Arrived, reason: &str| match file.set_len(0) {
            Ok(()) => {
                *arrived = Arrived { have: 0, version: None };
                Attempt::Again(reason.into())
            }
            Err(error) => cache(error),
        };
        // Parts of different versions make no file; a weak tag tells versions apart only roughly.
        let version = answer.text(ETAG.as_str()).filter(|tag| !tag.starts_with("W/")).map(str::to_owned);
        if at > 0 && arrived.version.is_some() && version.is_some() && arrived.version != version {
            return Err(restart(arrived, "the file on the server changed"));
        }
        arrived.version = version;
        let mut known = Vec::new();
        while let Some(chunk) = answer.next().map_err(again)? {
            let (same, new) =
                chunk.split_at(arrived.have.saturating_sub(at).min(chunk.len() as u64) as usize);
            known.resize(same.len(), 0);
            file.read_exact_at(&mut known, at).map_err(cache)?;
            if same != known {
                return Err(restart(arrived, "the server did not resume where the file ended"));
            }
            if new.len() as u64 > self.remote.size - arrived.have {
                let got = arrived.have + new.len() as u64;
                remove_own(file, partial).map_err(Attempt::Fatal)?;
                let file = self.url.to_string();
                return Err(Attempt::Fatal(HubError::WrongSize { file, expected: self.remote.size, got }));
            }
            file.write_all_at(new, arrived.have).map_err(cache)?;
            arrived.have += new.len() as u64;
            at += chunk.len() as u64;
            bar.set_position(arrived.have);
            if !(self.watch)(self.name, arrived.have, self.remote.size) {
                return Err(Attempt::Fatal(HubError::Interrupted));
            }
        }
        Ok(())
    }

    fn broken(&self, at: u64, reason: String) -> HubError {
        HubError::Broken { url: self.url.to_string(), at, size: self.remote.size, reason }
    }

    fn check_space(&self, folder: &Path, needed: u64) -> Result<(), HubError> {
        let free = free_space(folder).map_err(|e| HubError::cache(folder, e))?;
        if needed <= free {
            return Ok(());
        }
        Err(HubError::NoSpace {
            url: self.url.to_string(),
            needed: ByteSize(needed),
            free: ByteSize(free),
            folder: folder.to_owned(),
        })
    }

    fn verify(&self, file: &mut File, partial: &Path) -> Result<(), HubError> {
        let Some(expected) = self.remote.sha256() else { return Ok(()) };
        let cache = |e| HubError::cache(partial, e);
        file.seek(SeekFrom::Start(0)).map_err(cache)?;
        let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
        loop {
            let n = file.read(&mut buffer).map_err(cache)?;
            if n == 0 {
                break;
            }
            hash.update(&buffer[..n]);
            self.http.look()?;
        }
        let got: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if got == expected {
            return Ok(());
        }
        // To go on from wrong bytes would never end well.
        remove_own(file, partial)?;
        Err(HubError::WrongContent { url: self.url.to_string(), expected: expected.into(), got })
    }

    /// Opens the partial file for this process alone; waits for another one that downloads the
    /// same. That one may rename or remove the file meanwhile: the file that is returned is the one
    /// at `path`, and stays there as long as every process acts on a file at `path` that it holds.
    fn open_locked(&self, path: &Path) -> Result<File, HubError> {
        let mut told = false;
        for _ in 0..MAX_LOCKED {
            let file = open(path).map_err(|e| HubError::cache(path, e))?;
            self.lock(&file, path, &mut told)?;
            if is_at(&file, path) {
                return Ok(file);
            }
        }
        Err(HubError::Replaced(path.to_owned()))
    }

    fn lock(&self, file: &File, path: &Path, told: &mut bool) -> Result<(), HubError> {
        loop {
            match lock::try_lock(file) {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(e)) => return Err(HubError::cache(path, e)),
            }
            if !std::mem::replace(told, true) {
                say!("waiting for another process that is downloading the same file");
            }
            self.http.pause(LOCK_LOOK)?;
        }
    }

    /// Two lines: names of files are long, and the bar needs room on a narrow terminal.
    fn bar(&self) -> ProgressBar {
        let style = ProgressStyle::with_template(
            "{wide_msg}\n{wide_bar} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left",
        )
        .expect("a constant template");
        ProgressBar::with_draw_target(Some(self.remote.size), progress::target())
            .with_style(style)
            .with_message(excerpt(self.name, 80))
    }
}

/// Reasons for which an attempt did not bring everything.
enum Attempt {
    /// Worth another one.
    Again(String),
    /// Not.
    Fatal(HubError),
}

/// Handles a response that did not come, or not whole.
fn again(reason: NoAnswer) -> Attempt {
    match reason {
        NoAnswer::Unreachable(reason) | NoAnswer::Broken(reason) => Attempt::Again(reason),
        NoAnswer::Interrupted => Attempt::Fatal(HubError::Interrupted),
    }
}

/// The part of a file on disk.
struct Arrived {
    /// Bytes.
    have: u64,
    /// The version that the last answer was of, if the server says one.
    version: Option<String>,
}

/// The first byte of a `Content-Range`: `bytes 42-99/100`.
fn first_byte(range: &str) -> Option<u64> {
    range.trim().strip_prefix("bytes")?.trim_start().split_once('-')?.0.trim().parse().ok()
}

/// Opens a regular file for writing, or makes it.
fn open(path: &Path) -> std::io::Result<File> {
    // A link would be locked at one place and renamed at another; opening a pipe would wait.
    let options = &mut OpenOptions::new();
    let file = open_no_link(options.read(true).write(true).create(true).truncate(false), path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(std::io::Error::other("not a regular file")),
    }
}

/// Returns true if an open file is the one at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    FileId::of(file).is_ok_and(|this| FileId::at_no_link(path) == Some(this))
}

/// Removes `path` if it is the open and locked file `file`: another process may have its own there.
fn remove_own(file: &File, path: &Path) -> Result<(), HubError> {
    if !is_at(file, path) {
        return Ok(());
    }
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(HubError::cache(path, e)),
        _ => Ok(()),
    }
}
