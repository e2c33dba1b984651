//! Where the news of memory comes from.

use std::os::fd::BorrowedFd;

/// What a source says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Bytes that can still be taken; none: the source does not know.
    pub headroom: Option<u64>,
    /// Since the last reading, somebody had to wait for memory.
    pub pressed: bool,
}

impl Reading {
    /// What two sources say together.
    pub fn and(self, other: Self) -> Self {
        let headroom = match (self.headroom, other.headroom) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self { headroom, pressed: self.pressed || other.pressed }
    }
}

/// Somewhere to look at how memory is.
pub trait Source: Send {
    /// How it is now; `held`: bytes of slots that this process has in RAM.
    fn read(&mut self, held: u64) -> Reading;

    /// What becomes readable out of band (`POLLPRI`) when there is news.
    fn wakes(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// It did: for sources that say so only once.
    fn woke(&mut self) {}
}
