//! Sources of information on memory.

use std::os::fd::BorrowedFd;

/// A reading of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Bytes that can still be allocated; `None` if the source does not know.
    pub headroom: Option<u64>,
    /// Whether a task had to wait for memory since the last reading.
    pub pressed: bool,
}

impl Reading {
    /// Combines the readings of two sources.
    pub fn and(self, other: Self) -> Self {
        let headroom = match (self.headroom, other.headroom) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self { headroom, pressed: self.pressed || other.pressed }
    }
}

/// A source of information on memory.
pub trait Source: Send {
    /// Takes a reading. `held` is the bytes of slots that this process has in RAM.
    fn read(&mut self, held: u64) -> Reading;

    /// Returns a descriptor that reports `POLLPRI` when there is something new to read.
    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Tells the source that its descriptor has reported: some descriptors report only once.
    fn woke(&mut self) {}
}
