//! Tells whether other programs took processor time while something was measured.

use std::time::{Duration, Instant};
use terrace_platform::processor;

/// Share of the wanted processor time below which a machine counts as busy. Measured on two idle cores, where ggml's
/// threads spin but graphs are made by one: 0.87 to 0.96; beside a busy loop on one of them: 0.57 to 0.74.
const BUSY_BELOW: f64 = 0.85;

/// The processor time that this process gets while `threads` threads of it want to run all the time.
pub struct CpuShare {
    threads: u32,
    begin: Instant,
    used: Duration,
}

impl CpuShare {
    /// Begins to count.
    pub fn begin(threads: u32) -> Self {
        Self { threads, begin: Instant::now(), used: processor::time() }
    }

    /// Returns the share of the wanted time that the process has got since the beginning: 1 on an idle machine.
    pub fn get(&self) -> f64 {
        let wanted = self.begin.elapsed().as_secs_f64() * f64::from(self.threads);
        (processor::time().saturating_sub(self.used).as_secs_f64() / wanted.max(1e-9)).min(1.0)
    }

    /// Returns whether others took so much time that what was measured says little.
    pub fn was_contended(&self) -> bool {
        self.get() < BUSY_BELOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_sleeps_has_a_small_share() {
        let share = CpuShare::begin(1);
        std::thread::sleep(Duration::from_millis(200));
        assert!(share.was_contended(), "{}", share.get());
        assert!((0.0..=1.0).contains(&share.get()));
    }
}
