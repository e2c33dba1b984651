//! How large a store's arena may be, said by another thread than the one that uses the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_model::ByteSize;

/// The budget of one store's slots, to be changed while the store works, from any thread.
///
/// The store takes notice when it is next called: by what computes, for each block of experts or matrix, or by
/// [`Store::poll`](crate::Store::poll) where nothing is computed. Looking costs an atomic load. A smaller budget holds as soon as
/// nothing beyond it is leased or on its way, at the latest at the beginning of the next graph.
#[derive(Clone, Debug)]
pub struct BudgetHandle {
    shared: Arc<Shared>,
    least: u64,
}

/// What a store and its handles share. Relaxed all of it: numbers that stand for themselves.
#[derive(Debug)]
pub(crate) struct Shared {
    wanted: AtomicU64,
    lent: AtomicU64,
    held: AtomicU64,
    most: u64,
}

impl Shared {
    pub fn new(most: u64) -> Arc<Self> {
        Arc::new(Self {
            wanted: AtomicU64::new(most),
            lent: AtomicU64::new(0),
            held: AtomicU64::new(0),
            most,
        })
    }

    /// What the store is to keep to.
    pub fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Relaxed).min(self.most - self.lent())
    }

    fn lent(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    /// What the arena has in RAM at most.
    pub fn hold(&self, bytes: u64) {
        self.held.store(bytes, Ordering::Relaxed);
    }
}

impl BudgetHandle {
    pub(crate) fn new(shared: &Arc<Shared>, least: u64) -> Self {
        Self { shared: Arc::clone(shared), least: least.min(shared.most) }
    }

    /// Slots of this many bytes together from now on, as near as there may be: at least [`BudgetHandle::least`], at most
    /// [`BudgetHandle::most`] without what is lent. Returns what it is.
    pub fn set(&self, bytes: ByteSize) -> ByteSize {
        let bytes = bytes.bytes().clamp(self.least, self.shared.most);
        self.shared.wanted.store(bytes, Ordering::Relaxed);
        self.wanted()
    }

    /// Lends this many bytes of the slots to something else that the same budget is for, from now on, instead of what was lent
    /// before.
    ///
    /// # Errors
    /// What can be lent at most; nothing has changed.
    pub fn lend(&self, bytes: ByteSize) -> Result<(), ByteSize> {
        let lendable = self.shared.most - self.least;
        if bytes.bytes() > lendable {
            return Err(ByteSize(lendable));
        }
        self.shared.lent.store(bytes.bytes(), Ordering::Relaxed);
        Ok(())
    }

    /// What is lent.
    pub fn lent(&self) -> ByteSize {
        ByteSize(self.shared.lent())
    }

    /// What the slots are to keep to.
    pub fn wanted(&self) -> ByteSize {
        ByteSize(self.shared.wanted())
    }

    /// The least that the consumer can work with.
    pub fn least(&self) -> ByteSize {
        ByteSize(self.least)
    }

    /// What the store was opened with.
    pub fn most(&self) -> ByteSize {
        ByteSize(self.shared.most)
    }

    /// Bytes of the arena that may be in RAM, as of the last graph or change: slots that were never used take none.
    pub fn held(&self) -> ByteSize {
        ByteSize(self.shared.held.load(Ordering::Relaxed))
    }
}
