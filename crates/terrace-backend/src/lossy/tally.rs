//! Counts of what lossy routing has changed.

use serde::Serialize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrace_store::StoreError;

/// Changes by lossy routing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LossyCounts {
    /// Pairs of token and expert in passes of one token.
    pub pairs: u64,
    /// Of these, those whose expert the router alone would not have chosen.
    pub substituted: u64,
    /// Of these, those that were left out.
    pub dropped: u64,
    /// Of these, those that were computed from the copy in fewer bits.
    pub low: u64,
}

impl LossyCounts {
    /// Counts since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            pairs: self.pairs.saturating_sub(earlier.pairs),
            substituted: self.substituted.saturating_sub(earlier.substituted),
            dropped: self.dropped.saturating_sub(earlier.dropped),
            low: self.low.saturating_sub(earlier.low),
        }
    }
}

/// The counts of a model, which any thread can read while a graph is computed.
#[derive(Debug, Default)]
pub struct LossyTally {
    pairs: AtomicU64,
    substituted: AtomicU64,
    dropped: AtomicU64,
    low: AtomicU64,
    /// True if a copy in fewer bits could not be read.
    low_failed: AtomicBool,
    /// True if it was said that they cannot be used.
    low_idle: AtomicBool,
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

    /// Counts a pair that is computed from the copy in fewer bits.
    pub fn low(&self) {
        self.low.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a copy in fewer bits could not be read: none is from now on.
    pub fn low_failed(&self, error: &StoreError) {
        if !self.low_failed.swap(true, Ordering::Relaxed) {
            tracing::warn!("{error}; experts are read in full from now on");
        }
    }

    /// Notes that a graph's experts are computed such that no copy in fewer bits can be used.
    pub fn low_has_no_effect(&self) {
        if !self.low_idle.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "experts are not read in fewer bits: the slots are too small for two of them, or the model's \
                 MoE blocks are computed product by product"
            );
        }
    }

    /// Returns true if copies in fewer bits are read.
    pub fn low_is_usable(&self) -> bool {
        !self.low_failed.load(Ordering::Relaxed)
    }

    /// The counts so far.
    pub fn counts(&self) -> LossyCounts {
        LossyCounts {
            pairs: self.pairs.load(Ordering::Relaxed),
            substituted: self.substituted.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            low: self.low.load(Ordering::Relaxed),
        }
    }
}
