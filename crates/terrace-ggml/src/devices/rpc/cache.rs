//! The folder in which ggml's RPC server keeps tensors, by the hashes of their bytes.
//!
//! ggml writes its files in place and reads them without looking: a server that was killed while it
//! wrote one, or whose disk was full, would give a client wrong weights. So files are compared with
//! their names before a client can ask for them: at the start, and, if they are new, before each
//! allocation, which a client makes before it sends a tensor. A folder has one server at a time.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;
use terrace_platform::file::{self, open_no_link};
use terrace_platform::{input_file, lock};

/// File of earlier comparisons: lines of name, length in bytes, and nanoseconds of the
/// last change since 1970.
const CHECKED: &str = "checked";
/// Largest list, in bytes: a quarter of a million tensors.
const MAX_LIST: u64 = 16 << 20;
/// Locked while a server uses the folder.
const LOCK: &str = "lock";

/// Length in bytes and time of the last change in nanoseconds since 1970.
type State = (u64, u128);

struct Cache {
    folder: PathBuf,
    /// Files whose bytes have the hash that is their name.
    checked: BTreeMap<String, State>,
    _lock: File,
}

static CACHE: Mutex<Option<Cache>> = Mutex::new(None);

/// Uses a folder from now on, which is made if it does not exist. Removes files that are damaged.
///
/// # Errors
/// If it cannot be written to, or another server uses it.
pub fn open(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let locked = open_lock(&folder.join(LOCK))?;
    lock::try_lock(&locked).map_err(|error| match error {
        TryLockError::WouldBlock => io::Error::other("another worker uses it"),
        TryLockError::Error(error) => error,
    })?;
    let known = input_file::read_regular_text(&folder.join(CHECKED), MAX_LIST).unwrap_or_default();
    let checked = known.lines().filter_map(parse).collect();
    let mut cache = Cache { folder: folder.into(), checked, _lock: locked };
    cache.check()?;
    *CACHE.lock().unwrap_or_else(PoisonError::into_inner) = Some(cache);
    Ok(())
}

/// Removes new files that are damaged, if there is a cache.
pub fn check() {
    if let Some(cache) = &mut *CACHE.lock().unwrap_or_else(PoisonError::into_inner)
        && let Err(error) = cache.check()
    {
        tracing::warn!("the cache {}: {error}", cache.folder.display());
    }
}

fn parse(line: &str) -> Option<(String, State)> {
    let mut words = line.split(' ');
    let (name, len, changed) = (words.next()?, words.next()?, words.next()?);
    Some((name.into(), (len.parse().ok()?, changed.parse().ok()?)))
}

fn state(metadata: &Metadata) -> io::Result<State> {
    let changed = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok((metadata.len(), changed.as_nanos()))
}

/// The hash that a file of ggml's is named by; `None` if it is none of them.
fn hash_of(name: &str) -> Option<u64> {
    (name.len() == 16).then(|| u64::from_str_radix(name, 16).ok()).flatten()
}

impl Cache {
    fn check(&mut self) -> io::Result<()> {
        let mut there = BTreeMap::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            let Some(hash) = hash_of(&name) else { continue };
            let meta = entry.metadata()?;
            let state = state(&meta)?;
            let known = self.checked.get(&name) == Some(&state);
            // A client would have ggml open a pipe, and wait for its writer.
            if meta.is_file() && (known || fnv(&mut input_file::open(&entry.path())?.0)? == hash) {
                there.insert(name, state);
            } else {
                tracing::info!("the cache had a damaged tensor, which is removed: {name}");
                fs::remove_file(entry.path())?;
            }
        }
        if there != self.checked {
            self.checked = there;
            let line = |(name, (len, changed)): (&String, &State)| format!("{name} {len} {changed}\n");
            let text: String = self.checked.iter().map(line).collect();
            let new = self.folder.join("checked.new");
            replace(&new, &self.folder.join(CHECKED), &text)?;
        }
        Ok(())
    }
}

/// Opens the file to lock. A pipe of that name is an error, and is not waited for.
fn open_lock(path: &Path) -> io::Result<File> {
    open_no_link(File::options().create(true).truncate(false).write(true), path)
}

/// Writes a file under a new name, and renames it.
#[expect(clippy::disallowed_methods, reason = "a list in the cache's own folder")]
fn replace(new: &Path, path: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::create_new(new)?.write_all(text.as_bytes())?;
    file::replace(new, path)
}

/// Returns the 64-bit FNV-1a hash of what is read, as ggml-rpc.cpp computes it.
fn fnv(from: &mut impl Read) -> io::Result<u64> {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut part = vec![0; 1 << 20];
    loop {
        let len = match from.read(&mut part) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            len => len?,
        };
        if len == 0 {
            return Ok(hash);
        }
        for byte in &part[..len] {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_tensors_are_removed_and_whole_ones_are_not_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("new/cache");
        fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).unwrap();
        // Known values of the hash.
        write("cbf29ce484222325", b"");
        write("85944171f73967e8", b"foobar");
        write("85944171f73967e9", b"foobar");
        write("notes", b"of the user");
        open(&folder).unwrap();
        let names = || {
            let names = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.filter(|name| name != LOCK && name != CHECKED).collect();
            names.sort();
            names
        };
        assert_eq!(names(), ["85944171f73967e8", "cbf29ce484222325", "notes"]);
        write("85944171f73967e8", b"foo");
        check();
        assert_eq!(names(), ["cbf29ce484222325", "notes"]);
        assert_eq!(open(&folder).unwrap_err().to_string(), "another worker uses it");
        *CACHE.lock().unwrap() = None;
        // What the list says has been compared is not read.
        write("85944171f73967e8", b"foo");
        let (len, changed) = state(&fs::metadata(folder.join("85944171f73967e8")).unwrap()).unwrap();
        write(CHECKED, format!("85944171f73967e8 {len} {changed}\nx\n").as_bytes());
        open(&folder).unwrap();
        assert_eq!(names(), ["85944171f73967e8", "cbf29ce484222325", "notes"]);
    }
}
