//! Memory that samplers hold, each by itself and all together.

use crate::cxx::bounds::Excess;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory of all samplers of the process, in bytes.
static ALL: AtomicU64 = AtomicU64::new(0);

/// The most that all may hold, in bytes: jobs that wait have a sampler each.
const MAX_BYTES: u64 = 512 << 20;

/// Memory of one sampler.
#[derive(Debug)]
pub struct Held {
    bytes: u64,
    most: u64,
}

impl Held {
    /// Nothing yet, and later up to `most` bytes.
    pub const fn new(most: u64) -> Self {
        Self { bytes: 0, most }
    }

    /// Notes that it holds as many bytes more, or fewer.
    ///
    /// # Errors
    /// It holds, or all samplers hold, more than they may. It is counted all the same, until it is dropped.
    pub fn add(&mut self, bytes: i64) -> Result<(), Excess> {
        let before = self.bytes;
        self.bytes = before.saturating_add_signed(bytes);
        let all = if self.bytes >= before {
            let more = self.bytes - before;
            ALL.fetch_add(more, Ordering::Relaxed) + more
        } else {
            let less = before - self.bytes;
            ALL.fetch_sub(less, Ordering::Relaxed) - less
        };
        if self.bytes > self.most {
            return Err(Excess::Memory(self.most >> 20));
        }
        if bytes > 0 && all > MAX_BYTES {
            return Err(Excess::Together(MAX_BYTES >> 20));
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        ALL.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The only test of this file: the sum is the process's.
    #[test]
    fn samplers_hold_so_much_each_and_all_together() {
        let mut one = Held::new(10 << 20);
        assert_eq!(one.add(10 << 20), Ok(()));
        assert_eq!(one.add(1), Err(Excess::Memory(10)));
        assert_eq!(one.add(-1), Ok(()));
        let mut rest = Held::new(u64::MAX);
        assert_eq!(rest.add((502 << 20) as i64), Ok(()));
        assert_eq!(one.add(-(1 << 20)), Ok(()));
        assert_eq!(rest.add(1 << 20), Ok(()));
        assert_eq!(rest.add(1), Err(Excess::Together(512)));
        drop(rest);
        // Memory that is freed may have been another's.
        assert_eq!(one.add(-(20 << 20)), Ok(()));
        assert_eq!((one.bytes, ALL.load(Ordering::Relaxed)), (0, 0));
    }
}
