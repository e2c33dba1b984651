//! A barrier for the threads of a custom node.

use crate::sync::atomic::{AtomicUsize, Ordering, fence};
use crate::sync::{Condvar, Mutex, hint, spins};
use std::sync::PoisonError;

/// Number of turns that a thread spins before it sleeps. A node's threads arrive within
/// microseconds of each other unless one waits for the disk; then a sleeping thread leaves its core
/// to the thread that copies the bytes.
const SPINS: u32 = spins(20_000);

/// A reusable barrier: spins briefly, then sleeps.
#[derive(Debug, Default)]
pub struct Barrier {
    arrived: AtomicUsize,
    round: AtomicUsize,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Barrier {
    /// Returns when `threads` threads have called it. Writes made by any of them before the call
    /// are visible to all after it.
    pub fn wait(&self, threads: usize) {
        if threads <= 1 {
            return;
        }
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round.wrapping_add(1), Ordering::Release);
            // With the sleepers' fence below: either the sleeper sees the new round, or we see it.
            fence(Ordering::SeqCst);
            if self.sleepers.load(Ordering::Relaxed) > 0 {
                drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
                self.wake.notify_all();
            }
            return;
        }
        for _ in 0..SPINS {
            if self.round.load(Ordering::Acquire) != round {
                return;
            }
            hint::spin_loop();
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while self.round.load(Ordering::Acquire) == round {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn nobody_passes_before_all_have_come() {
        const THREADS: usize = 4;
        let barrier = Barrier::default();
        let counter = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for id in 0..THREADS {
                let (barrier, counter) = (&barrier, &counter);
                scope.spawn(move || {
                    for round in 0..200 {
                        if round % 50 == 0 && id == 0 {
                            // Long enough for the others to fall asleep.
                            std::thread::sleep(Duration::from_millis(5));
                        }
                        counter.fetch_add(1, Ordering::Relaxed);
                        barrier.wait(THREADS);
                        assert_eq!(counter.load(Ordering::Relaxed), (round + 1) * THREADS);
                        barrier.wait(THREADS);
                    }
                });
            }
        });
    }
}
