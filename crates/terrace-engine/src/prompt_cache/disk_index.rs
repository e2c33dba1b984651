//! The files of a directory of kept conversations.

use super::file::Opened;
use super::kept::Kept;
use super::key::CacheKey;
use super::ram::of_tokens;
use super::usable::{Memory, Usable};
use crate::adapters::Scales;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use terrace_platform::input_file;

/// The ending of a kept conversation's file.
const ENDING: &str = "kept";

/// Contents of a directory.
pub struct DiskIndex {
    dir: PathBuf,
    limit: u64,
    context: usize,
    entries: Vec<Entry>,
    /// Number of files that were not what their names say.
    refused: u64,
}

/// Returns true if a name is one that [`DiskIndex::path`] makes: a user may have files with this ending, too.
fn is_ours(name: &str) -> bool {
    let parts = || {
        let (key, rest) = name.strip_suffix(ENDING)?.strip_suffix('.')?.split_once('-')?;
        let (tokens, sum) = rest.split_once('-')?;
        Some((key, tokens, sum))
    };
    let hex = |text: &str| text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    parts().is_some_and(|(key, tokens, sum)| hex(key) && hex(sum) && tokens.parse::<u64>().is_ok())
}

struct Entry {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
    /// `None`: it belongs to another model, or to another computation. Such files count and make
    /// room as all others do.
    ours: Option<Ours>,
}

struct Ours {
    tokens: Vec<i32>,
    scales: Scales,
    checkpoint: Option<usize>,
}

impl DiskIndex {
    /// Reads the heads of the files in `dir` that have names as [`DiskIndex::path`] makes them. Damaged
    /// ones are removed, each with a line in the log; all other files are left alone.
    pub fn scan(dir: &Path, limit: u64, context: usize, key: &CacheKey) -> std::io::Result<Self> {
        let mut this = Self { dir: dir.into(), limit, context, entries: Vec::new(), refused: 0 };
        for file in fs::read_dir(dir)?.flatten() {
            let is_file = file.file_type().is_ok_and(|kind| kind.is_file());
            if is_file && file.file_name().to_str().is_some_and(is_ours) {
                this.add(file.path(), key);
            }
        }
        this.make_room(0);
        Ok(this)
    }

    fn add(&mut self, path: PathBuf, key: &CacheKey) {
        match Opened::read(&path) {
            Ok(Opened { key: theirs, tokens, checkpoint, bytes, .. }) => {
                let scales = key.scales_of(&theirs).filter(|_| tokens.len() <= self.context);
                let ours = scales.map(|scales| Ours { tokens, scales, checkpoint });
                let used = fs::metadata(&path).and_then(|meta| meta.modified());
                self.entries.push(Entry { path, bytes, used: used.unwrap_or(SystemTime::UNIX_EPOCH), ours });
            }
            Err(reason) => self.refuse(&path, &reason),
        }
    }

    /// Removes a file that cannot be used.
    fn refuse(&mut self, path: &Path, reason: &str) {
        tracing::warn!("removed the kept conversation {}: {reason}", path.display());
        let _ = fs::remove_file(path);
        self.refused += 1;
    }

    /// The path for a conversation that was computed with these adapters.
    pub fn path(&self, key: &CacheKey, tokens: &[i32], scales: &Scales) -> PathBuf {
        let mut sum = crc32fast::Hasher::new();
        tokens.iter().for_each(|token| sum.update(&token.to_le_bytes()));
        self.dir.join(format!(
            "{:08x}-{}-{:08x}.{ENDING}",
            key.with(scales).number(),
            tokens.len(),
            sum.finalize()
        ))
    }

    /// The conversation that saves most of a prompt for the same adapters, and what can be used of it.
    pub fn find(&self, memory: Memory, prompt: &[i32], scales: &Scales) -> Option<(PathBuf, Usable)> {
        let ours = self.entries.iter().filter_map(|entry| Some((&entry.path, entry.ours.as_ref()?)));
        let ours = ours.filter(|(_, ours)| ours.scales == *scales);
        let of = |Ours { tokens, checkpoint, .. }: &Ours| of_tokens(memory, tokens, *checkpoint, prompt);
        let (path, used) = ours.map(|(path, ours)| (path, of(ours))).max_by_key(|(_, used)| used.tokens)?;
        (used.tokens > 0).then(|| (path.clone(), used))
    }

    /// Returns true if a conversation that begins with these tokens is there, computed with these adapters.
    pub fn covers(&self, memory: Memory, tokens: &[i32], scales: &Scales) -> bool {
        let ours = self.entries.iter().filter_map(|entry| entry.ours.as_ref());
        ours.filter(|ours| ours.scales == *scales).any(|ours| match memory {
            Memory::Rows => ours.tokens.starts_with(tokens),
            Memory::Windows(_) | Memory::States => ours.tokens == tokens,
        })
    }

    /// Removes the files that were used least recently, until `bytes` more find room. False if there
    /// is not as much room at all.
    pub fn make_room(&mut self, bytes: u64) -> bool {
        let Some(most) = self.limit.checked_sub(bytes) else { return false };
        self.entries.sort_by_key(|entry| entry.used);
        let mut used = self.used();
        self.entries.retain(|entry| {
            let stays = used <= most;
            if !stays {
                used -= entry.bytes;
                // Another process may have removed it already.
                let _ = fs::remove_file(&entry.path);
            }
            stays
        });
        true
    }

    /// Adds a file that was written. It takes the place of those that it continues, if it can be cut
    /// back to them.
    pub fn wrote(&mut self, memory: Memory, path: PathBuf, bytes: u64, kept: &Kept) {
        let tokens = &kept.tokens;
        self.entries.retain(|entry| {
            let same = entry.ours.as_ref().filter(|ours| ours.scales == kept.scales);
            let continued = same.is_some_and(|ours| match memory {
                Memory::Rows => tokens.starts_with(&ours.tokens),
                Memory::Windows(_) | Memory::States => *tokens == ours.tokens,
            });
            if continued && entry.path != path {
                let _ = fs::remove_file(&entry.path);
            }
            !continued && entry.path != path
        });
        let (scales, checkpoint) = (kept.scales.clone(), kept.checkpoint_at());
        let ours = Some(Ours { tokens: tokens.clone(), scales, checkpoint });
        self.entries.push(Entry { path, bytes, used: SystemTime::now(), ours });
    }

    /// Notes that a file was used, also for other runs.
    pub fn was_used(&mut self, path: &Path) {
        let now = SystemTime::now();
        self.entries.iter_mut().filter(|entry| entry.path == path).for_each(|entry| entry.used = now);
        let _ = input_file::open(path).and_then(|(file, _)| file.set_modified(now));
    }

    /// Forgets a file that could not be read, and removes it if its contents are the reason.
    pub fn lost(&mut self, path: &Path, reason: &str) {
        self.entries.retain(|entry| entry.path != path);
        // Another process of the same directory may have removed it.
        if path.exists() {
            self.refuse(path, reason);
        }
    }

    /// Bytes of all files.
    pub fn used(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }

    /// Number of conversations that this model can use.
    pub fn len(&self) -> usize {
        self.entries.iter().filter(|entry| entry.ours.is_some()).count()
    }

    /// Most bytes of all files.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// Number of files that were refused.
    pub const fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::is_ours;

    #[test]
    fn files_of_the_user_are_not_kept_conversations() {
        assert!(is_ours("0123abcd-17-89ef0123.kept"));
        for name in ["notes.kept", "0123abcd-17-89ef0123", "0123abcd--89ef0123.kept", "a-1-b.kept", ".kept"] {
            assert!(!is_ours(name), "{name}");
        }
    }
}
