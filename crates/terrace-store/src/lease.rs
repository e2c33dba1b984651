//! Which slots are in use: counts that a dropped [`Fetch`](crate::Fetch) can decrease without the
//! store.

use crate::block::BlockId;
use crate::sync::atomic::{AtomicU64, Ordering};

/// A count of leases and a generation for every block, packed into one word with the generation in
/// the upper half.
///
/// The generation changes whenever the block's bytes arrive or are evicted. Only the store adds
/// leases and changes generations; leases can be released on any thread.
#[derive(Debug)]
pub(crate) struct LeaseTable {
    words: Box<[AtomicU64]>,
}

const fn generation(word: u64) -> u32 {
    (word >> 32) as u32
}

const fn count(word: u64) -> u32 {
    word as u32
}

impl LeaseTable {
    pub fn new(blocks: usize) -> Self {
        Self { words: (0..blocks).map(|_| AtomicU64::new(0)).collect() }
    }

    fn word(&self, block: BlockId) -> &AtomicU64 {
        &self.words[block.index()]
    }

    /// Returns the block's current generation.
    pub fn generation(&self, block: BlockId) -> u32 {
        generation(self.word(block).load(Ordering::Relaxed))
    }

    /// Adds a lease, and returns its generation.
    pub fn lease(&self, block: BlockId) -> u32 {
        let word = self.word(block).fetch_add(1, Ordering::Relaxed);
        assert_ne!(count(word), u32::MAX, "leases of block {block:?} are counted in 32 bits");
        generation(word)
    }

    /// Removes a lease. Returns false if the lease had been voided because its read failed.
    pub fn release(&self, block: BlockId, lease: u32) -> bool {
        // Release: a later eviction of the block happens after all reads through the lease.
        self.word(block)
            .fetch_update(Ordering::Release, Ordering::Relaxed, |word| {
                (generation(word) == lease && count(word) > 0).then(|| word - 1)
            })
            .is_ok()
    }

    /// Returns whether the block is leased.
    pub fn is_leased(&self, block: BlockId) -> bool {
        count(self.word(block).load(Ordering::Acquire)) > 0
    }

    /// Returns whether any block is leased. Checks all of them.
    pub fn any_leased(&self) -> bool {
        self.words.iter().any(|word| count(word.load(Ordering::Acquire)) > 0)
    }

    /// Starts a new generation without leases; leases of the old one are void.
    pub fn renew(&self, block: BlockId) {
        // In one step: a release on another thread comes before it, or is refused.
        let next = |word| Some(u64::from(generation(word).wrapping_add(1)) << 32);
        let renewed = self.word(block).fetch_update(Ordering::Acquire, Ordering::Relaxed, next);
        debug_assert!(renewed.is_ok(), "every generation has a next one");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_once_and_only_in_its_generation() {
        let table = LeaseTable::new(2);
        let block = BlockId(1);
        let first = table.lease(block);
        assert_eq!(table.lease(block), first);
        assert!(table.release(block, first) && table.is_leased(block) && table.any_leased());
        assert!(table.release(block, first) && !table.any_leased());
        assert!(!table.release(block, first), "given back twice");
        let void = table.lease(block);
        table.renew(block);
        let second = table.lease(block);
        assert_ne!(second, void);
        assert!(!table.release(block, void), "of another generation");
        assert!(table.is_leased(block) && !table.is_leased(BlockId(0)));
    }
}
