//! Sources of information on memory.

use terrace_platform::limit_events::Events;
use terrace_platform::pressure::Psi;
use terrace_platform::wait::Waker;

/// A reading of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Bytes that can still be allocated; `None` if the source does not know.
    pub headroom: Option<u64>,
    /// True if a task had to wait for memory since the last reading.
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

    /// Returns what reports when there is something new to read.
    fn waker(&self) -> Option<Waker<'_>> {
        None
    }

    /// Tells the source that its waker has reported: some report only once.
    fn woke(&mut self) {}
}

impl Source for Psi {
    fn read(&mut self, _held: u64) -> Reading {
        Reading { headroom: None, pressed: self.is_pressed() }
    }

    fn waker(&self) -> Option<Waker<'_>> {
        Psi::waker(self)
    }

    fn woke(&mut self) {
        Psi::woke(self);
    }
}

impl Source for Events {
    fn read(&mut self, _held: u64) -> Reading {
        Reading { headroom: None, pressed: self.is_pressed() }
    }

    fn waker(&self) -> Option<Waker<'_>> {
        Some(Events::waker(self))
    }
}
