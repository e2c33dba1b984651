//! A consumer's hold on blocks, from asking for them to being done with them.

use crate::block::BlockId;
use crate::lease::LeaseTable;
use std::collections::VecDeque;
use std::sync::Arc;

/// Blocks that were asked for together, and the leases on them.
///
/// Made once and used again and again: its vectors keep their size. While a fetch holds a block, the block's bytes stay
/// where they are; [`Store::release`](crate::Store::release), or dropping the fetch, ends that for all of its blocks.
#[derive(Debug, Default)]
pub struct Fetch {
    pub(crate) leases: Option<Arc<LeaseTable>>,
    /// Every block accepted and not released.
    pub(crate) held: Vec<Entry>,
    /// Accepted and not known to be there.
    pub(crate) waiting: Vec<Entry>,
    /// There (or failed), not yet returned.
    pub(crate) ready: VecDeque<Entry>,
    /// Room for sorting arrivals, with their order.
    pub(crate) arrived: Vec<(u64, Entry)>,
    /// The store's event count up to which `waiting` was looked through.
    pub(crate) seen: u64,
}

/// One accepted block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Where it stood in the list given to `start`.
    pub index: usize,
    pub block: BlockId,
    /// The generation that is leased.
    pub generation: u32,
}

impl Fetch {
    /// One that holds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether it holds no block.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether every block that it holds has been handed out.
    pub fn is_exhausted(&self) -> bool {
        self.waiting.is_empty() && self.ready.is_empty()
    }

    /// How many blocks it holds, each as often as it was asked for.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Gives back every lease.
    pub(crate) fn let_go(&mut self) {
        if let Some(leases) = &self.leases {
            for entry in self.held.drain(..) {
                // False for a block whose load failed: the failure has ended that lease already.
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
    /// Where the block stood in the list given to [`Store::start`](crate::Store::start).
    pub index: usize,
    /// The block.
    pub block: BlockId,
    /// Its first byte. Good until the fetch is released; aligned to 32 bytes if the extent's offset is (as GGUF's are).
    pub data: *const u8,
    /// How many bytes it has.
    pub len: usize,
}
