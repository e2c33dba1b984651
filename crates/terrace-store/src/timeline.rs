//! What happened when: reads and waits on a common clock, for a trace viewer.

mod chrome;

use crate::block::BlockId;
use crate::clock::Clock;
use crate::purpose::Purpose;
use std::time::Instant;
use terrace_model::{ByteSize, LayerId};

/// Spans of time, as many as it was made for; to record allocates nothing.
#[derive(Clone, Debug)]
pub struct Timeline {
    clock: Clock,
    origin: Instant,
    spans: Vec<Span>,
    capacity: usize,
    dropped: u64,
    /// What thread 0 is at, and since when.
    current: Option<(u64, What)>,
}

/// Something that took time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where: spans of one track do not overlap.
    pub track: Track,
    /// Nanoseconds from the timeline's origin.
    pub start: u64,
    /// As `start`, and not before it.
    pub end: u64,
    /// What it was.
    pub what: What,
}

/// What was busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    /// One of the requests that can be in flight at a time, by its place in the store's table.
    Read(u32),
    /// A computing thread, by its index; 0 is the one that calls the store.
    Thread(u32),
}

/// What a span was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A request, from when the engine got it until it was noticed that it is over (retries included).
    Read {
        /// The block, or none for reads into the caller's memory.
        block: Option<BlockId>,
        /// Bytes that came, hulls included.
        bytes: ByteSize,
        /// Why.
        purpose: Purpose,
    },
    /// Waiting for bytes.
    Wait {
        /// Whose.
        layer: Option<LayerId>,
    },
    /// Computing experts.
    Experts {
        /// Whose.
        layer: Option<LayerId>,
    },
    /// Something else that a thread does.
    Other {
        /// What it is called.
        name: &'static str,
        /// Where it belongs.
        layer: Option<LayerId>,
    },
}

impl Timeline {
    /// Room for `capacity` spans; the origin is the clock's now.
    pub fn new(capacity: usize, clock: Clock) -> Self {
        Self {
            origin: clock.now(),
            clock,
            spans: Vec::with_capacity(capacity),
            capacity,
            dropped: 0,
            current: None,
        }
    }

    /// Nanoseconds since the origin.
    pub fn now(&self) -> u64 {
        self.at(self.clock.now())
    }

    /// Nanoseconds from the origin to `instant`, 0 if that was before it.
    pub fn at(&self, instant: Instant) -> u64 {
        u64::try_from(instant.saturating_duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Records a span. When the timeline is full, it is only counted.
    pub fn push(&mut self, span: Span) {
        debug_assert!(span.start <= span.end, "{span:?}");
        if self.spans.len() < self.capacity {
            self.spans.push(span);
        } else {
            self.dropped += 1;
        }
    }

    /// Records what took from `start` until now.
    pub fn since(&mut self, start: u64, track: Track, what: What) {
        let end = self.now().max(start);
        self.push(Span { track, start, end, what });
    }

    /// Thread 0 is at `what` from `now` on, until the next call; what it was at before ends.
    pub fn switch(&mut self, now: Instant, what: Option<What>) {
        let now = self.at(now);
        self.cut(now);
        self.current = what.map(|what| (now, what));
    }

    /// Thread 0 was at `what` meanwhile; then it went on with what it was at before.
    pub fn interrupt(&mut self, from: Instant, to: Instant, what: What) {
        let (start, end) = (self.at(from), self.at(to));
        self.cut(start);
        self.push(Span { track: Track::Thread(0), start, end, what });
        if let Some((since, _)) = &mut self.current {
            *since = end;
        }
    }

    /// Records what thread 0 was at until `end`.
    fn cut(&mut self, end: u64) {
        if let Some((start, what)) = self.current
            && start < end
        {
            self.push(Span { track: Track::Thread(0), start, end, what });
        }
    }

    /// The spans, in the order of their ends.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Spans that found no room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Forgets all spans. The origin stays.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.dropped = 0;
        self.current = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_timeline_counts_and_does_not_grow() {
        let mut timeline = Timeline::new(2, Clock::default());
        let what = What::Wait { layer: None };
        let buffer = timeline.spans.as_ptr();
        for _ in 0..5 {
            let start = timeline.now();
            timeline.since(start, Track::Thread(0), what);
        }
        assert_eq!((timeline.spans().len(), timeline.dropped()), (2, 3));
        assert_eq!(timeline.spans.as_ptr(), buffer);
        assert!(timeline.spans[0].end <= timeline.spans[1].start);
        timeline.clear();
        assert_eq!((timeline.spans().len(), timeline.dropped()), (0, 0));
        assert_eq!(timeline.at(timeline.origin), 0);
    }
}
