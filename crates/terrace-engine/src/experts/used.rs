//! Uses of experts during a job.

use crate::engine::Engine;
use terrace_lanes::Lanes;
use terrace_store::StoreStats;

/// Uses of experts while a job had its slot. Whatever else was computed meanwhile counts
/// as well, since batches and the experts they share belong to no job alone.
#[derive(Clone, Debug, Default)]
pub struct ExpertsUsed {
    /// Pairs of token and expert that devices computed from copies.
    pub hot: u64,
    /// All other pairs.
    pub cold: u64,
    /// Copies on devices at the end.
    pub held: u64,
    /// Exchanges that paid: those that were made, and at the end one for each layer in which one
    /// waited for its bytes to be granted.
    pub candidates: u64,
    /// Experts copied to devices.
    pub exchanged: u64,
    /// Number of layers that got other copies.
    pub layers_changed: u32,
    /// Counters of the store.
    pub store: StoreStats,
    /// True if another job had a slot at the same time.
    pub shared: bool,
}

/// The counters when a job got its slot.
pub struct Mark {
    pairs: [u64; 2],
    copied: u64,
    store: StoreStats,
    /// True if another job has had a slot since then.
    pub shared: bool,
}

impl Mark {
    /// Notes the counters; `None` in stock runs, and if the model has no experts.
    pub fn of(engine: &Engine) -> Option<Self> {
        let usage = engine.expert_usage().filter(|_| !engine.shapes().is_empty())?;
        Some(Self {
            pairs: usage.totals(),
            copied: engine.hot_totals().unwrap_or_default().copied(),
            store: engine.store_stats().unwrap_or_default(),
            shared: false,
        })
    }

    /// Counts since then.
    pub fn since(&self, engine: &Engine) -> ExpertsUsed {
        let [all, hot] = engine.expert_usage().map(terrace_backend::ExpertUsage::totals).unwrap_or_default();
        let (all, hot) = (all.saturating_sub(self.pairs[0]), hot.saturating_sub(self.pairs[1]));
        let totals = engine.hot_totals().unwrap_or_default();
        let (held, layers_changed) = engine.copies_after(self.copied);
        let exchanged = totals.copied().saturating_sub(self.copied);
        ExpertsUsed {
            hot,
            cold: all.saturating_sub(hot),
            held,
            candidates: exchanged + totals.waiting,
            exchanged,
            layers_changed,
            store: engine.store_stats().unwrap_or_default().since(&self.store),
            shared: self.shared,
        }
    }
}

impl Engine {
    /// The number of copies on devices, and of layers that got some after the first `copied` ones.
    fn copies_after(&self, copied: u64) -> (u64, u32) {
        let Some(weights) = self.weights() else { return (0, 0) };
        let lanes = Lanes::of(weights);
        lanes.get().map_or((0, 0), |lanes| (lanes.copies().count() as u64, lanes.changed_after(copied)))
    }
}
