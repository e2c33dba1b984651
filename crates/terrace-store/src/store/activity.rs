//! The consumer's activity, as it reports it: for counting how much reading is hidden, and for
//! timelines.

use super::Store;
use crate::block::BlockId;
use crate::timeline::What;
use std::time::{Duration, Instant};

/// The consumer's activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computing {
    /// Experts of this block's layer.
    Experts(BlockId),
    /// Anything else before this block's layer; `None` after the last layer.
    Dense(Option<BlockId>),
}

/// A running computation, with the counters at its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Activity {
    what: Computing,
    since: Instant,
    stall: Duration,
    device_wait: Duration,
    busy: Duration,
}

impl Store {
    /// Notes that the consumer computes `what` from now on, which ends its previous computation.
    /// Waiting for blocks or devices does not count as computing. Costs one reading of the clock.
    pub fn computing(&mut self, what: Computing) {
        let now = self.clock.now();
        self.count_activity(now);
        let (stall, device_wait) = (self.counters.total.stall, self.device_wait);
        let busy = self.busy.total_at(now);
        self.activity = Some(Activity { what, since: now, stall, device_wait, busy });
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

    /// Notes that the consumer has stopped computing.
    pub fn computed(&mut self) {
        let now = self.clock.now();
        self.count_activity(now);
        if let Some(timeline) = &mut self.timeline {
            timeline.switch(now, None);
        }
    }

    /// Counts the consumer's computation up to `now`.
    fn count_activity(&mut self, now: Instant) {
        let Some(activity) = self.activity.take() else { return };
        let stall = self.counters.total.stall.saturating_sub(activity.stall);
        let waited = stall + self.device_wait.saturating_sub(activity.device_wait);
        let computed = now.saturating_duration_since(activity.since).saturating_sub(waited);
        match activity.what {
            Computing::Experts(block) => self.counters.experts(block, computed),
            Computing::Dense(_) => self.counters.total.dense += computed,
        }
        // All of the waiting time had something in flight.
        let busy = self.busy.total_at(now).saturating_sub(activity.busy).saturating_sub(stall);
        self.counters.total.hidden += busy.min(computed);
    }
}
