//! Recording a store's timeline: its reads, and what waited for them.

use super::Store;
use crate::block::BlockId;
use crate::inflight::Flight;
use crate::timeline::{Timeline, Track, What};
use std::time::Instant;
use terrace_model::{ByteSize, LayerId};

impl Store {
    /// Starts recording reads and waits, at most `capacity` spans; an earlier timeline is dropped.
    pub fn record_timeline(&mut self, capacity: usize) {
        self.timeline = Some(Timeline::new(capacity, self.clock.clone()));
    }

    /// Returns the timeline that is being recorded, so that others can add spans.
    pub fn timeline_mut(&mut self) -> Option<&mut Timeline> {
        self.timeline.as_mut()
    }

    /// Ends the recording, and returns the timeline.
    pub fn take_timeline(&mut self) -> Option<Timeline> {
        self.timeline.take()
    }

    /// Records a request that has ended.
    pub(super) fn record_read(&mut self, tag: u32, flight: &Flight) {
        if let (Some(timeline), Some(sent)) = (&mut self.timeline, flight.sent) {
            let (block, purpose) = (flight.owner.block(), flight.purpose);
            let what = What::Read { block, bytes: ByteSize(flight.came), purpose };
            timeline.since(timeline.at(sent), Track::Read(tag), what);
        }
    }

    /// Notes that the consumer has waited between two instants for a device that computes experts of
    /// this layer. That is neither computing nor waiting for reads.
    pub fn waited_for_device(&mut self, layer: Option<LayerId>, from: Instant, to: Instant) {
        self.device_wait += to.saturating_duration_since(from);
        if let Some(timeline) = &mut self.timeline {
            timeline.interrupt(from, to, What::Join { layer });
        }
    }

    /// Counts and records that the consumer has waited since `asked`, for a block or for something
    /// else.
    pub(super) fn waited(&mut self, block: Option<BlockId>, asked: Instant) {
        let now = self.clock.now();
        self.counters.stall(block, now.saturating_duration_since(asked));
        if let Some(timeline) = &mut self.timeline {
            let layer = block.and_then(|block| self.blocks[block.index()].layer);
            timeline.interrupt(asked, now, What::Wait { layer });
        }
    }
}
