//! The oracle: knows every use to come. For replays of traces, to see how far from the best the others are.

use super::heap::Heap;
use super::ranked::Ranked;
use crate::block::BlockId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The uses to come, by block, and how far the replay is.
#[derive(Clone, Debug)]
pub struct Future {
    /// By block: the times of its uses, ascending.
    uses: Arc<[Vec<u64>]>,
    now: Arc<AtomicU64>,
}

impl Future {
    /// `uses[block]` are the times, ascending, at which the block will be asked for; the time is 0.
    pub fn new(uses: Vec<Vec<u64>>) -> Self {
        Self { uses: uses.into(), now: Arc::default() }
    }

    /// It is `time` now.
    pub fn advance(&self, time: u64) {
        // One thread at a time owns the store and its replay; the atomic only makes the sharing possible.
        self.now.store(time, Ordering::Relaxed);
    }

    /// The time of the block's first use after now; `u64::MAX` if there is none.
    fn next_use(&self, block: BlockId) -> u64 {
        let (uses, now) = (&self.uses[block.index()], self.now.load(Ordering::Relaxed));
        uses.get(uses.partition_point(|time| *time <= now)).copied().unwrap_or(u64::MAX)
    }
}

/// Evicts the block whose next use is farthest away: the fewest misses that any policy can have when blocks have equal
/// sizes, and close to it when they nearly have.
#[derive(Debug)]
pub struct Belady {
    future: Future,
    /// By nearness of the next use.
    order: Heap<u64>,
}

impl Belady {
    /// For blocks `0..blocks`, all of whose uses are in `future`.
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
