//! The timeline of a store: its reads, and what waited for them.

use super::Store;
use crate::block::BlockId;
use crate::inflight::Flight;
use crate::timeline::{Span, Timeline, Track, What};
use std::time::Instant;
use terrace_model::ByteSize;

impl Store {
    /// Records reads and waits from now on, `capacity` spans at most; an earlier timeline is dropped.
    pub fn record_timeline(&mut self, capacity: usize) {
        self.timeline = Some(Timeline::new(capacity));
    }

    /// The timeline that is being recorded, for others to add what they do.
    pub fn timeline_mut(&mut self) -> Option<&mut Timeline> {
        self.timeline.as_mut()
    }

    /// Ends the recording.
    pub fn take_timeline(&mut self) -> Option<Timeline> {
        self.timeline.take()
    }

    /// A request is over.
    pub(super) fn record_read(&mut self, tag: u32, flight: &Flight) {
        if let (Some(timeline), Some(sent)) = (&mut self.timeline, flight.sent) {
            let (block, purpose) = (flight.owner.block(), flight.purpose);
            let what = What::Read { block, bytes: ByteSize(flight.need as u64), purpose };
            timeline.since(timeline.at(sent), Track::Read(tag), what);
        }
    }

    /// The consumer has waited since `asked`.
    pub(super) fn record_wait(&mut self, block: BlockId, asked: Instant) {
        if let Some(timeline) = &mut self.timeline {
            let what = What::Wait { layer: self.blocks[block.index()].layer };
            let (start, end) = (timeline.at(asked), timeline.now());
            timeline.push(Span { track: Track::Lane(0), start, end, what });
        }
    }
}
