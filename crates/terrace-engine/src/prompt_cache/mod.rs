//! Conversations whose keys and values are kept, so that a prompt that begins as one of them need
//! not be computed again.
//!
//! A conversation is copied out of the context before another one takes its place there. Copies lie
//! in RAM ([`RamCache`]) and in files ([`DiskCache`]); each belongs to one state of one model
//! ([`CacheKey`]). What a prompt can use of one depends on the kind of memory
//! ([`usable`](usable::usable)).

mod copy;
mod counts;
mod disk;
mod disk_index;
mod file;
#[cfg(fuzzing)]
pub mod fuzzing;
mod kept;
mod key;
mod ram;
pub mod usable;

pub use counts::PromptCacheStatus;
pub use disk::DiskCache;
#[doc(hidden)]
pub use file::resealed;
pub use file::{FILE, read_file, write_file};
pub use kept::Kept;
pub use key::{AdapterKey, CacheKey};
pub use ram::{RamCache, of_kept};

use crate::adapters::Scales;
use counts::Counts;
use terrace_model::ByteSize;

/// All kept conversations, and what was done with them.
#[derive(Default)]
pub struct PromptCache {
    /// Those in RAM.
    pub ram: RamCache,
    /// Those in files; `None` without a directory for them.
    pub disk: Option<DiskCache>,
    /// Totals since the start.
    pub counts: Counts,
}

impl PromptCache {
    /// An empty cache of so much RAM.
    pub fn new(ram: ByteSize) -> Self {
        Self { ram: RamCache::new(ram.bytes()), ..Self::default() }
    }

    /// Returns true if a copy of these tokens, computed with these adapters, would be new.
    pub fn lacks(&self, memory: usable::Memory, tokens: &[i32], scales: &Scales) -> bool {
        match &self.disk {
            _ if self.ram.is_on() => !self.ram.covers(memory, tokens, scales),
            Some(disk) => !disk.covers(tokens, scales),
            None => false,
        }
    }

    /// The state that callers see. `checkpoints` are bytes of checkpoints of slots.
    pub fn status(&self, checkpoints: u64) -> PromptCacheStatus {
        let Self { ram, disk, counts } = self;
        let index = disk.as_ref().map(DiskCache::index);
        PromptCacheStatus {
            limit: ram.limit(),
            bytes: ram.used() + checkpoints,
            conversations: ram.conversations(),
            evicted: ram.evicted(),
            kept: counts.kept,
            restored: counts.restored,
            restored_tokens: counts.restored_tokens,
            copied_bytes: counts.copied_bytes,
            copy_seconds: counts.copy_seconds,
            disk_limit: index.map_or(0, disk_index::DiskIndex::limit),
            disk_bytes: index.map_or(0, disk_index::DiskIndex::used),
            disk_conversations: index.map_or(0, disk_index::DiskIndex::len),
            disk_written: disk.as_ref().map_or(0, DiskCache::written),
            disk_read: counts.disk_read,
            disk_refused: index.map_or(0, disk_index::DiskIndex::refused),
        }
    }
}
