//! The work of a lane, in numbers.

use std::time::Duration;

/// Work of a lane, or its part for one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneWork {
    /// Number of jobs: computations of an MoE block.
    pub jobs: u64,
    /// Pairs of token and expert in them.
    pub pairs: u64,
    /// Time from the begin of a job on the device until its results were in memory.
    pub computing: Duration,
    /// Time that the CPU waited for jobs after computing its own part.
    pub waited: Duration,
    /// Bytes of weights sent to the device.
    pub copied: u64,
    /// Time that sending them took; of a lane, also the time until they had arrived.
    pub copying: Duration,
}

impl LaneWork {
    /// The work since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            jobs: self.jobs.saturating_sub(earlier.jobs),
            pairs: self.pairs.saturating_sub(earlier.pairs),
            computing: self.computing.saturating_sub(earlier.computing),
            waited: self.waited.saturating_sub(earlier.waited),
            copied: self.copied.saturating_sub(earlier.copied),
            copying: self.copying.saturating_sub(earlier.copying),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.jobs += other.jobs;
        self.pairs += other.pairs;
        self.computing += other.computing;
        self.waited += other.waited;
        self.copied += other.copied;
        self.copying += other.copying;
    }
}
