//! Detail of reports about experts, and their begin.

use super::seen::ExpertsSeen;
use crate::learn::collect::counted;
use crate::learn::sides::{Sides, lane_of, record};
use std::time::Duration;
use terrace_backend::{ExpertUsage, LayerUsage};
use terrace_lanes::HotLayerReport;
use terrace_model::ByteSize;
use terrace_model::learn::{LayerShape, LearnFile, LearnLayer, Reported};
use terrace_store::LayerStats;

/// A window over counters that are never reset themselves: they count from its start on.
#[derive(Debug, Default)]
pub struct Window {
    mode: Reported,
    /// The counters at its start; empty means the load.
    usage: Vec<LayerUsage>,
    stats: Vec<LayerStats>,
    lanes: Vec<HotLayerReport>,
}

impl Window {
    /// Starts a window now.
    pub fn start(mode: Reported, usage: &ExpertUsage, seen: &ExpertsSeen) -> Self {
        let lanes = seen.hot.as_ref().map(|hot| hot.layers.clone()).unwrap_or_default();
        Self { mode, usage: usage.layers().collect(), stats: seen.stats.clone(), lanes }
    }

    /// Makes a window since the load.
    pub fn of(mode: Reported) -> Self {
        Self { mode, ..Self::default() }
    }

    /// Detail of the reports.
    pub const fn mode(&self) -> Reported {
        self.mode
    }

    /// The uses since the window's start as a learn file, with times if these are reported.
    pub fn report(
        &self,
        model: &str,
        shapes: &[LayerShape],
        usage: &ExpertUsage,
        seen: &ExpertsSeen,
    ) -> LearnFile {
        let layer = |(index, used): (usize, LayerUsage)| {
            let used = since(used, self.usage.get(index));
            let mut layer = counted(&used);
            if self.mode == Reported::Full {
                self.add_times(&mut layer, seen, used.time);
            }
            layer
        };
        let layers = match self.mode {
            Reported::Off => Vec::new(),
            _ => usage.layers().enumerate().map(layer).filter(|layer| !layer.experts.is_empty()).collect(),
        };
        LearnFile { mode: self.mode, layers, ..LearnFile::default() }.of_model(model, shapes)
    }

    fn add_times(&self, layer: &mut LearnLayer, seen: &ExpertsSeen, in_memory: Duration) {
        let of = |all: &[LayerStats]| {
            all.iter().find(|stats| stats.layer.is_some_and(|id| id.0 == layer.layer)).copied()
        };
        let before = of(&self.stats).unwrap_or_default();
        let stats = of(&seen.stats).map(|now| LayerStats {
            experts: now.experts.saturating_sub(before.experts),
            stall: now.stall.saturating_sub(before.stall),
            hits: now.hits.saturating_sub(before.hits),
            misses: now.misses.saturating_sub(before.misses),
            joined: now.joined.saturating_sub(before.joined),
            bytes_read: ByteSize(now.bytes_read.bytes().saturating_sub(before.bytes_read.bytes())),
            ..now
        });
        let number = layer.layer;
        let copies = |all: &[HotLayerReport]| all.iter().position(|copies| copies.layer == number);
        let sides = seen.hot.as_ref().and_then(|hot| {
            let now = &hot.layers[copies(&hot.layers)?];
            layer.lane = lane_of(hot, now);
            let before = copies(&self.lanes).map(|at| Sides::of(&self.lanes[at]));
            Some(Sides::of(now).since(&before.unwrap_or_default()))
        });
        record(layer, stats.as_ref(), sides.as_ref(), in_memory);
    }
}

/// The uses since `before`.
fn since(now: LayerUsage, before: Option<&LayerUsage>) -> LayerUsage {
    let Some(before) = before else { return now };
    let less = |now: Vec<u64>, before: &[u64]| {
        now.into_iter().zip(before).map(|(now, before)| now.saturating_sub(*before)).collect()
    };
    LayerUsage {
        layer: now.layer,
        calls: now.calls.saturating_sub(before.calls),
        all: less(now.all, &before.all),
        hot: less(now.hot, &before.hot),
        time: now.time.saturating_sub(before.time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_model::LayerId;

    fn usage(calls: u64, all: [u64; 3], hot: [u64; 3]) -> LayerUsage {
        LayerUsage {
            layer: LayerId(4),
            calls,
            all: all.into(),
            hot: hot.into(),
            time: Duration::from_secs(calls),
        }
    }

    #[test]
    fn a_window_counts_from_its_start_on() {
        let before = usage(2, [1, 5, 0], [1, 2, 0]);
        let now = usage(5, [1, 9, 3], [1, 1, 0]);
        assert_eq!(since(now.clone(), Some(&before)), usage(3, [0, 4, 3], [0, 0, 0]), "a count taken back");
        assert_eq!(since(now.clone(), None), now);
    }
}
