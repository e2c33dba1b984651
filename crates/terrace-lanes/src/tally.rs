//! Results of a layer's computations, and times of both sides: sums, from times that are
//! measured anyway.

use std::time::Duration;

/// Computations of a layer that has copies, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneTally {
    /// Those in which the device had a job, and those of them in which the CPU computed pairs beside
    /// it.
    pub launched: u64,
    /// See [`LaneTally::launched`].
    pub beside: u64,
    /// Those in which no chosen expert had a copy.
    pub without_hot: u64,
    /// Those in which the device had copies, but its round trip would not have paid.
    pub threshold: u64,
    /// Those in which the device failed or was lost, so that the CPU computed everything.
    pub failed: u64,
    /// From handing jobs over until their results were there.
    pub round_trips: Duration,
    /// Time of the CPU for its part, with waits for reads.
    pub cpu: Duration,
    /// Time of the computations with a job as a whole, from handing over to the last result.
    pub together: Duration,
}

impl LaneTally {
    /// The sums since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            launched: self.launched.saturating_sub(earlier.launched),
            beside: self.beside.saturating_sub(earlier.beside),
            without_hot: self.without_hot.saturating_sub(earlier.without_hot),
            threshold: self.threshold.saturating_sub(earlier.threshold),
            failed: self.failed.saturating_sub(earlier.failed),
            round_trips: self.round_trips.saturating_sub(earlier.round_trips),
            cpu: self.cpu.saturating_sub(earlier.cpu),
            together: self.together.saturating_sub(earlier.together),
        }
    }

    /// Counts a computation that begins: pairs that the device gets, pairs of the CPU, and whether
    /// the device works and has copies of chosen experts.
    pub(super) const fn begin(&mut self, hot: usize, cold: usize, works: bool, has: bool) {
        match (hot > 0, works, has) {
            (true, ..) => {
                self.launched += 1;
                self.beside += (cold > 0) as u64;
            }
            (false, false, _) => self.failed += 1,
            (false, true, true) => self.threshold += 1,
            (false, true, false) => self.without_hot += 1,
        }
    }
}
