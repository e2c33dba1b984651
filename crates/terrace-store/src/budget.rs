//! The budget of a store's slots, which another thread can change while the store is in use.

use crate::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use terrace_model::ByteSize;

/// A handle to the budget of one store's slots. It can be used from any thread while the store
/// works.
///
/// The store checks the budget, with one atomic load, when it is called: during a computation for
/// each matrix or set of experts, and otherwise by [`Store::poll`](crate::Store::poll). A smaller
/// budget takes effect as soon as nothing beyond it is leased or being read, at the latest at the
/// beginning of the next graph.
#[derive(Clone, Debug)]
pub struct BudgetHandle {
    shared: Arc<Shared>,
}

/// Numbers that a store and its handles share. All accesses are relaxed, because each number is
/// meaningful by itself.
#[derive(Debug)]
pub(crate) struct Shared {
    wanted: AtomicU64,
    /// Upper limit of the budget.
    limit: AtomicU64,
    lent: AtomicU64,
    held: AtomicU64,
    /// The smallest budget that the consumer can work with.
    least: AtomicU64,
    most: u64,
}

impl Shared {
    pub fn new(most: u64) -> Arc<Self> {
        Arc::new(Self {
            wanted: AtomicU64::new(most),
            limit: AtomicU64::new(most),
            lent: AtomicU64::new(0),
            held: AtomicU64::new(0),
            least: AtomicU64::new(0),
            most,
        })
    }

    /// Returns the budget that the store must keep to.
    pub fn wanted(&self) -> u64 {
        let wanted = self.wanted.load(Ordering::Relaxed).min(self.limit.load(Ordering::Relaxed));
        wanted.max(self.least()).min(self.most - self.lent())
    }

    fn least(&self) -> u64 {
        self.least.load(Ordering::Relaxed)
    }

    /// Returns the largest budget less what is lent.
    pub fn most_unlent(&self) -> u64 {
        self.most - self.lent()
    }

    fn lent(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    /// Sets the most bytes of the arena that may be in RAM.
    pub fn hold(&self, bytes: u64) {
        self.held.store(bytes, Ordering::Relaxed);
    }
}

impl BudgetHandle {
    pub(crate) fn new(shared: &Arc<Shared>, least: u64) -> Self {
        shared.least.store(least.min(shared.most), Ordering::Relaxed);
        Self { shared: Arc::clone(shared) }
    }

    /// Sets the bytes of all slots together, limited to at least [`BudgetHandle::least`] and at
    /// most [`BudgetHandle::most`] less what is lent. Returns the resulting budget.
    pub fn set(&self, bytes: ByteSize) -> ByteSize {
        let bytes = bytes.bytes().clamp(self.shared.least(), self.shared.most);
        self.shared.wanted.store(bytes, Ordering::Relaxed);
        self.wanted()
    }

    /// Limits the budget, whatever else is [set](BudgetHandle::set): to at least
    /// [`BudgetHandle::least`] and at most [`BudgetHandle::most`]. Returns the limit.
    pub fn limit(&self, bytes: ByteSize) -> ByteSize {
        let bytes = bytes.bytes().clamp(self.shared.least(), self.shared.most);
        self.shared.limit.store(bytes, Ordering::Relaxed);
        ByteSize(bytes)
    }

    /// Returns the limit that was set last.
    pub fn limited(&self) -> ByteSize {
        ByteSize(self.shared.limit.load(Ordering::Relaxed))
    }

    /// Sets how many bytes of the slots are lent to something else within the same budget. This
    /// replaces what was lent before.
    ///
    /// # Errors
    /// If that is more than can be lent: returns the most that can be. Nothing changes then.
    pub fn lend(&self, bytes: ByteSize) -> Result<(), ByteSize> {
        let lendable = self.shared.most - self.shared.least();
        if bytes.bytes() > lendable {
            return Err(ByteSize(lendable));
        }
        self.shared.lent.store(bytes.bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// Returns the lent bytes.
    pub fn lent(&self) -> ByteSize {
        ByteSize(self.shared.lent())
    }

    /// Returns the budget that the slots must keep to.
    pub fn wanted(&self) -> ByteSize {
        ByteSize(self.shared.wanted())
    }

    /// Returns the smallest budget that the consumer can work with.
    pub fn least(&self) -> ByteSize {
        ByteSize(self.shared.least())
    }

    /// Returns the budget that the store was opened with.
    pub fn most(&self) -> ByteSize {
        ByteSize(self.shared.most)
    }

    /// Returns the bytes of the arena that may be in RAM, as of the last graph or change. Slots
    /// that were never used take no RAM.
    pub fn held(&self) -> ByteSize {
        ByteSize(self.shared.held.load(Ordering::Relaxed))
    }
}
