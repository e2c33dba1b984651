//! What the consumer does between its calls, as it says: for counting what reading is hidden behind, and for the timeline.

use super::Store;
use crate::block::BlockId;
use crate::timeline::What;
use std::time::{Duration, Instant};

/// What the consumer computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computing {
    /// Experts, this one's layer's.
    Experts(BlockId),
    /// Anything else, on the way to this block's layer; `None` after the last.
    Dense(Option<BlockId>),
}

/// A computation that goes on, and what was counted when it began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Activity {
    what: Computing,
    since: Instant,
    stall: Duration,
    busy: Duration,
}

impl Store {
    /// The consumer computes this from now on, and nothing else that it said before; waiting for blocks meanwhile is not
    /// computing. Costs a look at the clock.
    pub fn computing(&mut self, what: Computing) {
        let now = self.clock.now();
        self.count_activity(now);
        let (stall, busy) = (self.counters.total.stall, self.busy.total_at(now));
        self.activity = Some(Activity { what, since: now, stall, busy });
        if let Some(timeline) = &mut self.timeline {
            let layer = |block: BlockId| self.blocks[block.index()].layer;
            timeline.switch(
                now,
                Some(match what {
                    Computing::Experts(block) => What::Experts { layer: layer(block) },
                    Computing::Dense(next) => What::Other { name: "dense", layer: next.and_then(layer) },
                }),
            );
        }
    }

    /// The consumer computes nothing any more.
    pub fn computed(&mut self) {
        let now = self.clock.now();
        self.count_activity(now);
        if let Some(timeline) = &mut self.timeline {
            timeline.switch(now, None);
        }
    }

    /// Counts what the consumer computed until `now`.
    fn count_activity(&mut self, now: Instant) {
        let Some(activity) = self.activity.take() else { return };
        let stall = self.counters.total.stall.saturating_sub(activity.stall);
        let computed = now.saturating_duration_since(activity.since).saturating_sub(stall);
        match activity.what {
            Computing::Experts(block) => self.counters.experts(block, computed),
            Computing::Dense(_) => self.counters.total.dense += computed,
        }
        // While the consumer waits, something is in flight.
        let busy = self.busy.total_at(now).saturating_sub(activity.busy).saturating_sub(stall);
        self.counters.total.hidden += busy.min(computed);
    }
}
