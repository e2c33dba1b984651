//! A consumer's hold on blocks, from requesting them to releasing them.

use crate::block::BlockId;
use crate::lease::LeaseTable;
use std::collections::VecDeque;
use std::sync::Arc;

/// Blocks that were requested together, and the leases on them.
///
/// A fetch is made once and reused, so that its vectors keep their size. While it holds a block,
/// the block's bytes stay where they are. [`Store::release`](crate::Store::release), or dropping
/// the fetch, ends that for all of its blocks.
#[derive(Debug, Default)]
pub struct Fetch {
    pub(crate) leases: Option<Arc<LeaseTable>>,
    /// Blocks that were accepted and not released.
    pub(crate) held: Vec<Entry>,
    /// Accepted blocks that are not known to have arrived.
    pub(crate) waiting: Vec<Entry>,
    /// Blocks that have arrived or failed, and have not been returned.
    pub(crate) ready: VecDeque<Entry>,
    /// Buffer for sorting arrivals by their order.
    pub(crate) arrived: Vec<(u64, Entry)>,
    /// The store's event count at the last check of `waiting`.
    pub(crate) seen: u64,
    /// Index of the block that was last returned as failed, until it is taken.
    pub(crate) failed: Option<usize>,
}

/// One accepted block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Index in the list given to `start`.
    pub index: usize,
    pub block: BlockId,
    /// The leased generation.
    pub generation: u32,
}

impl Fetch {
    /// Makes a fetch that holds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether it holds no block.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns whether all blocks that it holds have been returned to the consumer.
    pub fn is_exhausted(&self) -> bool {
        self.waiting.is_empty() && self.ready.is_empty()
    }

    /// Returns the number of blocks that it holds, each counted as often as it was requested.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Ends all leases.
    pub(crate) fn let_go(&mut self) {
        self.failed = None;
        if let Some(leases) = &self.leases {
            for entry in self.held.drain(..) {
                // Returns false for a block whose read failed, because that has ended the lease
                // already.
                leases.release(entry.block, entry.generation);
            }
        }
        self.waiting.clear();
        self.ready.clear();
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// A block whose bytes are in RAM.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// Index of the block in the list given to [`Store::start`](crate::Store::start).
    pub index: usize,
    pub block: BlockId,
    /// Address of its first byte, valid until the fetch is released. Aligned to 32 bytes if the
    /// extent's offset is, as in GGUF files.
    pub data: *const u8,
    /// Number of bytes.
    pub len: usize,
}
