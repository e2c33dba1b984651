//! Counts of what lossy routing has changed.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// What lossy routing has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LossyCounts {
    /// Pairs of token and expert in passes of one token.
    pub pairs: u64,
    /// Of these, those whose expert the router alone would not have chosen.
    pub substituted: u64,
    /// Of these, those that were left out.
    pub dropped: u64,
}

impl LossyCounts {
    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            pairs: self.pairs.saturating_sub(earlier.pairs),
            substituted: self.substituted.saturating_sub(earlier.substituted),
            dropped: self.dropped.saturating_sub(earlier.dropped),
        }
    }
}

/// The counts of a model, which any thread can read while a graph is computed.
#[derive(Debug, Default)]
pub struct LossyTally {
    pairs: AtomicU64,
    substituted: AtomicU64,
    dropped: AtomicU64,
}

impl LossyTally {
    /// Counts a node's pairs, and of these the substituted ones.
    pub fn chose(&self, pairs: usize, substituted: usize) {
        self.pairs.fetch_add(pairs as u64, Ordering::Relaxed);
        self.substituted.fetch_add(substituted as u64, Ordering::Relaxed);
    }

    /// Counts pairs that were left out.
    pub fn dropped(&self, pairs: usize) {
        self.dropped.fetch_add(pairs as u64, Ordering::Relaxed);
    }

    /// The counts so far.
    pub fn counts(&self) -> LossyCounts {
        LossyCounts {
            pairs: self.pairs.load(Ordering::Relaxed),
            substituted: self.substituted.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }
}
