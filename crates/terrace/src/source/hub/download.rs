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
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use terrace_model::ByteSize;
use ureq::http::{StatusCode, Uri};

/// Bytes fetched again when a download goes on, and compared with those on disk: a server that
/// ignores the range and starts over, or sends something else by now, is found out before its bytes
/// are mixed in.
const OVERLAP: u64 = 64 << 10;

/// How often a download of another process is looked at.
const LOCK_LOOK: Duration = Duration::from_millis(200);

/// What is told how far a file is: its name, the bytes that are there, all bytes. Says whether it is
/// still wanted.
pub type Watch<'w> = dyn Fn(&str, u64, u64) -> bool + Send + Sync + 'w;

/// A file to download.
pub struct Download<'a> {
    /// How.
    pub http: &'a Http,
    /// Where from.
    pub url: &'a Uri,
    /// Its path there.
    pub name: &'a str,
    /// What it will be.
    pub remote: &'a RemoteFile,
    /// Where to.
    pub blob: &'a Path,
    /// What is told how far it is.
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
        if self.blob.is_file() {
            // Another process was faster, and this one held an empty file.
            return remove(&partial);
        }
        let bar = self.bar();
        self.fetch(&mut file, &partial, folder, &bar)?;
        bar.finish_and_clear();
        self.verify(&mut file, &partial)?;
        file.sync_all().map_err(|e| HubError::cache(&partial, e))?;
        std::fs::rename(&partial, self.blob).map_err(|e| HubError::cache(self.blob, e))
    }

    fn fetch(
        &self,
        file: &mut File,
        partial: &Path,
        folder: &Path,
        bar: &ProgressBar,
    ) -> Result<(), HubError> {
        let size = self.remote.size;
        let mut have = file.metadata().map_err(|e| HubError::cache(partial, e))?.len();
        if have > size {
            // Of another download of the same name; nothing in it can be trusted.
            file.set_len(0).map_err(|e| HubError::cache(partial, e))?;
            have = 0;
        }
        self.check_space(folder, size - have)?;
        let (mut failures, mut wait) = (0, FIRST_WAIT);
        while have < size {
            bar.set_position(have);
            let before = have;
            let reason = match self.attempt(file, partial, &mut have, bar) {
                Ok(()) if have == size => break,
                Ok(()) => "the connection ended early".to_owned(),
                Err(Attempt::Fatal(error)) => return Err(error),
                Err(Attempt::Again(reason)) => reason,
            };
            if have > before {
                (failures, wait) = (0, FIRST_WAIT);
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

    /// One request for all that is missing; `have` follows what is on disk.
    fn attempt(
        &self,
        file: &mut File,
        partial: &Path,
        have: &mut u64,
        bar: &ProgressBar,
    ) -> Result<(), Attempt> {
        let cache = |e| Attempt::Fatal(HubError::cache(partial, e));
        let overlap = (*have).min(OVERLAP);
        let start = *have - overlap;
        let mut known = vec![0; overlap as usize];
        file.seek(SeekFrom::Start(start)).map_err(cache)?;
        file.read_exact(&mut known).map_err(cache)?;

        let range = start..self.remote.size;
        let mut answer = self.http.get(self.url, Some(&range)).map_err(again)?;
        match answer.status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => {}
            status => {
                let reason = format!("the server answered {status}");
                let passing = answer.is_passing();
                return Err(if passing {
                    Attempt::Again(reason)
                } else {
                    Attempt::Fatal(self.broken(*have, reason))
                });
            }
        }
        let mut known = &known[..];
        while let Some(chunk) = answer.next().map_err(again)? {
            let (same, new) = chunk.split_at(known.len().min(chunk.len()));
            if same != &known[..same.len()] {
                file.set_len(0).map_err(cache)?;
                *have = 0;
                return Err(Attempt::Again("the server did not resume where the file ended".into()));
            }
            known = &known[same.len()..];
            if new.len() as u64 > self.remote.size - *have {
                let got = *have + new.len() as u64;
                remove(partial).map_err(Attempt::Fatal)?;
                let file = self.url.to_string();
                return Err(Attempt::Fatal(HubError::WrongSize { file, expected: self.remote.size, got }));
            }
            file.write_all(new).map_err(cache)?;
            *have += new.len() as u64;
            bar.set_position(*have);
            if !(self.watch)(self.name, *have, self.remote.size) {
                return Err(Attempt::Fatal(HubError::Interrupted));
            }
        }
        Ok(())
    }

    fn broken(&self, at: u64, reason: String) -> HubError {
        HubError::Broken { url: self.url.to_string(), at, size: self.remote.size, reason }
    }

    fn check_space(&self, folder: &Path, needed: u64) -> Result<(), HubError> {
        let stat = rustix::fs::statvfs(folder).map_err(|e| HubError::cache(folder, e.into()))?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
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
        remove(partial)?;
        Err(HubError::WrongContent { url: self.url.to_string(), expected: expected.into(), got })
    }

    /// Opens the partial file for this process alone; waits for another one that downloads the
    /// same.
    fn open_locked(&self, path: &Path) -> Result<File, HubError> {
        let cache = |e| HubError::cache(path, e);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(cache)?;
        let mut told = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(e)) => return Err(cache(e)),
            }
            if !told {
                say!("waiting for another process that is downloading the same file");
                told = true;
            }
            self.http.pause(LOCK_LOOK)?;
        }
    }

    fn bar(&self) -> ProgressBar {
        let style =
            ProgressStyle::with_template("{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {eta}")
                .expect("a constant template");
        ProgressBar::with_draw_target(Some(self.remote.size), progress::target())
            .with_style(style)
            .with_message(self.name.to_owned())
    }
}

/// How an attempt ended that did not bring everything.
enum Attempt {
    /// Worth another one.
    Again(String),
    /// Not.
    Fatal(HubError),
}

/// What becomes of an answer that did not come, or not whole.
fn again(reason: NoAnswer) -> Attempt {
    match reason {
        NoAnswer::Unreachable(reason) | NoAnswer::Broken(reason) => Attempt::Again(reason),
        NoAnswer::Interrupted => Attempt::Fatal(HubError::Interrupted),
    }
}

fn remove(path: &Path) -> Result<(), HubError> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(HubError::cache(path, e)),
        _ => Ok(()),
    }
}
