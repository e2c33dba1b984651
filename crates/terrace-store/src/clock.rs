//! The clock of a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The clock by which a store counts and records time: the system's clock, or one that only
/// advances when told to. Tests that count time use the latter, so that a busy machine changes
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<Still>>);

/// A clock that stands still.
#[derive(Debug)]
struct Still {
    origin: Instant,
    /// Nanoseconds that have passed.
    passed: AtomicU64,
}

impl Clock {
    /// Makes a clock that stands still between calls of [`Clock::sleep`].
    pub fn still() -> Self {
        Self(Some(Arc::new(Still { origin: Instant::now(), passed: AtomicU64::new(0) })))
    }

    /// Returns whether it is a clock that stands still.
    pub(crate) fn is_still(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the current time.
    pub fn now(&self) -> Instant {
        match &self.0 {
            None => Instant::now(),
            Some(still) => still.origin + Duration::from_nanos(still.passed.load(Ordering::Relaxed)),
        }
    }

    /// Lets `time` pass: the thread sleeps, or a clock that stands still is advanced.
    pub fn sleep(&self, time: Duration) {
        match &self.0 {
            None => std::thread::sleep(time),
            Some(still) => {
                let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                still.passed.fetch_add(nanos, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_still_clock_moves_when_it_is_told_to_and_so_do_its_clones() {
        let clock = Clock::still();
        let (other, begin) = (clock.clone(), clock.now());
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(clock.now(), begin);
        other.sleep(Duration::from_secs(3600));
        assert_eq!(clock.now() - begin, Duration::from_secs(3600));
    }
}
