//! Tells whether other programs took processor time while something was measured.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Share of the wanted processor time below which a machine counts as busy. Measured on two idle cores, with ggml's
/// threads spinning: 0.93 to 1.0; beside one busy loop: 0.55 to 0.8.
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
        Self { threads, begin: Instant::now(), used: used() }
    }

    /// Returns the share of the wanted time that the process has got since the beginning: 1 on an idle machine.
    pub fn get(&self) -> f64 {
        let wanted = self.begin.elapsed().as_secs_f64() * f64::from(self.threads);
        (used().saturating_sub(self.used).as_secs_f64() / wanted.max(1e-9)).min(1.0)
    }

    /// Returns whether others took so much time that what was measured says little.
    pub fn was_contended(&self) -> bool {
        self.get() < BUSY_BELOW
    }
}

/// Processor time of all threads of this process.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
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
