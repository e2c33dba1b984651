//! The oracle, which knows all future uses. Replays of traces use it to measure how far the other
//! policies are from the optimum.

use super::heap::Heap;
use super::ranked::Ranked;
use crate::block::BlockId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The future uses of each block, and the time of the replay.
#[derive(Clone, Debug)]
pub struct Future {
    /// The times of each block's uses, ascending.
    uses: Arc<[Vec<u64>]>,
    now: Arc<AtomicU64>,
}

impl Future {
    /// Makes the future at time 0. `uses[block]` are the times, ascending, at which the block will
    /// be requested.
    pub fn new(uses: Vec<Vec<u64>>) -> Self {
        Self { uses: uses.into(), now: Arc::default() }
    }

    /// Sets the current time.
    pub fn advance(&self, time: u64) {
        // One thread at a time owns the store and its replay; the atomic only makes sharing
        // possible.
        self.now.store(time, Ordering::Relaxed);
    }

    /// Returns the time of the block's first use after the current time; `u64::MAX` if there is
    /// none.
    fn next_use(&self, block: BlockId) -> u64 {
        let (uses, now) = (&self.uses[block.index()], self.now.load(Ordering::Relaxed));
        uses.get(uses.partition_point(|time| *time <= now)).copied().unwrap_or(u64::MAX)
    }
}

/// Evicts the block whose next use is farthest in the future. With blocks of equal sizes no policy
/// has fewer misses; with nearly equal sizes it is close to that.
#[derive(Debug)]
pub struct Belady {
    future: Future,
    /// Ordered by the next use, the farthest first.
    order: Heap<u64>,
}

impl Belady {
    /// Makes a policy for blocks `0..blocks`, all of whose uses are in `future`.
    pub fn new(blocks: usize, future: Future) -> Self {
        Self { future, order: Heap::new(blocks) }
    }
}

impl Ranked for Belady {
    type Key = u64;

    fn count(&mut self, block: BlockId) -> u64 {
        !self.future.next_use(block)
    }

    fn order(&mut self) -> &mut Heap<u64> {
        &mut self.order
    }
}
