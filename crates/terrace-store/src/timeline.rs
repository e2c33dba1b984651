//! Timelines: reads, waits, computing and the work of devices on a common clock, for a trace viewer.

mod chrome;
mod idle;

pub use chrome::FILE;

use crate::block::BlockId;
use crate::clock::Clock;
use crate::purpose::Purpose;
use std::collections::BTreeMap;
use std::time::Instant;
use terrace_model::{ByteSize, LayerId};

/// Spans that a run records at most, of 48 bytes each: some hundred tokens of a large model. Later ones
/// are only counted.
pub const SPANS: usize = 1 << 20;

/// Name of the mark where a pass over the layers begins.
pub const PASS: &str = "pass";

/// A fixed number of spans of time. Recording does not allocate.
#[derive(Clone, Debug)]
pub struct Timeline {
    clock: Clock,
    origin: Instant,
    spans: Vec<Span>,
    capacity: usize,
    dropped: u64,
    /// The current activity of thread 0, and its start.
    current: Option<(u64, What)>,
    /// Names of tracks that do not follow from their numbers.
    names: BTreeMap<Track, String>,
}

/// A span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The track. Spans of one track do not overlap.
    pub track: Track,
    /// Start in nanoseconds from the timeline's origin.
    pub start: u64,
    /// End in nanoseconds from the timeline's origin, not before the start.
    pub end: u64,
    /// The activity.
    pub what: What,
}

/// The track of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    /// A request in flight, by its index in the store's table.
    Read(u32),
    /// The times without any request.
    Idle,
    /// A computing thread, by its index; 0 is the thread that calls the store.
    Thread(u32),
    /// A lane that computes copies of experts, by its index.
    Lane(u32),
    /// Experts that are copied to a lane while it computes, by the lane's index.
    Sent(u32),
    /// A device that computes whole layers, by its index.
    Device(u32),
}

/// The activity of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A request, from passing it to the engine until its completion is noticed, including retries.
    Read {
        /// The block; `None` for reads into the caller's memory.
        block: Option<BlockId>,
        /// Bytes read, including hulls.
        bytes: ByteSize,
        /// Why it was read.
        purpose: Purpose,
    },
    /// No request, although one followed.
    Idle {
        /// The layer of the bytes that arrived last.
        after: Option<LayerId>,
        /// The layer of the bytes that were asked for next.
        before: Option<LayerId>,
    },
    /// Waiting for bytes.
    Wait {
        /// The layer of the bytes.
        layer: Option<LayerId>,
    },
    /// Computing experts.
    Experts {
        /// The layer of the experts.
        layer: Option<LayerId>,
    },
    /// Waiting for a device that computes beside the thread.
    Join {
        /// The layer that the device computes.
        layer: Option<LayerId>,
    },
    /// A job of a lane, from its first copy of activations until its results are in memory.
    Kernel {
        /// The layer of its experts.
        layer: Option<LayerId>,
        /// Pairs of token and expert.
        pairs: u32,
    },
    /// Copying weights to a device.
    Copy {
        /// Their layer; `None` while what was sent to the device is arriving.
        layer: Option<LayerId>,
        /// Bytes sent.
        bytes: ByteSize,
    },
    /// A piece of a graph that a device's own backend computes, with everything else between the
    /// two pieces around it.
    Piece {
        /// The last layer of the piece before; `None` if that is of no layer.
        after: Option<LayerId>,
        /// The first layer of the piece after; `None` if that is of no layer.
        before: Option<LayerId>,
    },
    /// Another activity of a thread.
    Other {
        /// Name of the activity.
        name: &'static str,
        /// Its layer, if it belongs to one.
        layer: Option<LayerId>,
    },
}

impl Timeline {
    /// Makes a timeline with room for `capacity` spans. Its origin is the clock's current time.
    pub fn new(capacity: usize, clock: Clock) -> Self {
        Self {
            origin: clock.now(),
            clock,
            spans: Vec::with_capacity(capacity),
            capacity,
            dropped: 0,
            current: None,
            names: BTreeMap::new(),
        }
    }

    /// Names a track. Call before recording: this allocates.
    pub fn name(&mut self, track: Track, name: String) {
        self.names.insert(track, name);
    }

    /// Records a span between two instants.
    pub fn between(&mut self, from: Instant, to: Instant, track: Track, what: What) {
        let start = self.at(from);
        self.push(Span { track, start, end: self.at(to).max(start), what });
    }

    /// Returns the nanoseconds since the origin.
    pub fn now(&self) -> u64 {
        self.at(self.clock.now())
    }

    /// Returns the nanoseconds from the origin to `instant`, 0 if that is before the origin.
    pub fn at(&self, instant: Instant) -> u64 {
        u64::try_from(instant.saturating_duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Records a span. If the timeline is full, the span is only counted.
    pub fn push(&mut self, span: Span) {
        debug_assert!(span.start <= span.end, "{span:?}");
        if self.spans.len() < self.capacity {
            self.spans.push(span);
        } else {
            self.dropped += 1;
        }
    }

    /// Records a span from `start` until now.
    pub fn since(&mut self, start: u64, track: Track, what: What) {
        let end = self.now().max(start);
        self.push(Span { track, start, end, what });
    }

    /// Notes that a pass over the layers begins now.
    pub fn pass(&mut self) {
        let now = self.now();
        self.cut(now);
        if let Some((since, _)) = &mut self.current {
            *since = now;
        }
        let what = What::Other { name: PASS, layer: None };
        self.push(Span { track: Track::Thread(0), start: now, end: now, what });
    }

    /// Notes that thread 0 does `what` from `now` on until the next call, and ends its previous
    /// activity.
    pub fn switch(&mut self, now: Instant, what: Option<What>) {
        let now = self.at(now);
        self.cut(now);
        self.current = what.map(|what| (now, what));
    }

    /// Records that thread 0 interrupted its activity for `what`, and then continued.
    pub fn interrupt(&mut self, from: Instant, to: Instant, what: What) {
        let (start, end) = (self.at(from), self.at(to));
        self.cut(start);
        self.push(Span { track: Track::Thread(0), start, end, what });
        if let Some((since, _)) = &mut self.current {
            *since = end;
        }
    }

    /// Records thread 0's activity up to `end`.
    fn cut(&mut self, end: u64) {
        if let Some((start, what)) = self.current
            && start < end
        {
            self.push(Span { track: Track::Thread(0), start, end, what });
        }
    }

    /// Returns the spans in the order in which they were recorded.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Returns the number of spans that had no room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Removes all spans. The origin and names stay.
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
